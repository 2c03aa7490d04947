# SPDX-License-Identifier: Apache-2.0
# Headers as text in the library, for the run-time compiler. The file is a module, and the script that its own custom command runs.

# moetail_embed_headers(OUTPUT FILE ROOTS DIR... HEADERS ...): FILE defines the functions of engine/cuda/sources.hpp over HEADERS, each
# named relative to the root that it lies in; made again when one of them changes, comes or goes.
function(moetail_embed_headers)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUTPUT" "ROOTS;HEADERS")
  set(names "")
  foreach(header IN LISTS arg_HEADERS)
    foreach(root IN LISTS arg_ROOTS)
      cmake_path(IS_PREFIX root ${header} is_in_root)
      if(is_in_root)
        cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${root} OUTPUT_VARIABLE name)
        list(APPEND names "${name}|${root}/${name}")
      endif()
    endforeach()
  endforeach()
  list(SORT names)
  # A file for the list: it would not fit every shell's command line, and a header that goes away has to trigger the command too.
  set(list_file ${arg_OUTPUT}.list)
  file(CONFIGURE OUTPUT ${list_file} CONTENT "${names}" @ONLY)
  add_custom_command(
    OUTPUT ${arg_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -D output=${arg_OUTPUT} -D list_file=${list_file} -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
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
foreach(entry IN LISTS names)
  string(REPLACE "|" ";" entry "${entry}")
  list(POP_FRONT entry name file)
  file(READ ${file} text)
  string(FIND "${text}" ")${delimiter}\"" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${name}: holds the end of the raw string it is embedded as")
  endif()
  file(SHA256 ${file} hash)
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
