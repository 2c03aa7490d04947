# SPDX-License-Identifier: Apache-2.0
# Headers as text in the library, for the run-time compiler. The file is a module, and the script that its own custom command runs.

# moetail_embed_headers(OUTPUT FILE ROOT DIR HEADERS ...): FILE defines the functions of engine/cuda/sources.hpp over HEADERS, each
# named relative to ROOT; made again when one of them changes, comes or goes.
function(moetail_embed_headers)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUTPUT;ROOT" "HEADERS")
  list(SORT arg_HEADERS)
  set(names "")
  foreach(header IN LISTS arg_HEADERS)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${arg_ROOT} OUTPUT_VARIABLE name)
    list(APPEND names ${name})
  endforeach()
  # A file for the list: it would not fit every shell's command line, and a header that goes away has to trigger the command too.
  set(list_file ${arg_OUTPUT}.list)
  file(CONFIGURE OUTPUT ${list_file} CONTENT "${names}" @ONLY)
  add_custom_command(
    OUTPUT ${arg_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -D output=${arg_OUTPUT} -D root=${arg_ROOT} -D list_file=${list_file}
            -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    DEPENDS ${arg_HEADERS} ${list_file} ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    COMMENT "Embedding the headers of the CUDA kernels"
    VERBATIM)
endfunction()

if(NOT CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  return()
endif()

file(READ ${list_file} names)
set(delimiter "moetail_header")
set(rows "")
set(hashes "")
foreach(name IN LISTS names)
  file(READ ${root}/${name} text)
  string(FIND "${text}" ")${delimiter}\"" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${name}: holds the end of the raw string it is embedded as")
  endif()
  file(SHA256 ${root}/${name} hash)
  string(APPEND hashes "${name} ${hash}\n")
  string(APPEND rows "      {\"${name}\", R\"${delimiter}(${text})${delimiter}\"},\n")
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${output} "// Made by cmake/EmbedHeaders.cmake: edit the headers instead.
#include \"engine/cuda/sources.hpp\"

#include <vector>

namespace moetail::cuda {

std::span<const Header> embedded_headers() {
  static const std::vector<Header> headers = {
${rows}  };
  return headers;
}

const char* embedded_headers_hash() {
  return \"${hash}\";
}

}  // namespace moetail::cuda
")
