# SPDX-License-Identifier: Apache-2.0
# A room is one object library; the libraries a user links are put together from the rooms' objects.

# moetail_glob(VAR PATTERN... [EXCLUDE REGEX]): sources of the current room, looked up again at every build.
function(moetail_glob var)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCLUDE" "")
  file(GLOB sources CONFIGURE_DEPENDS ${arg_UNPARSED_ARGUMENTS})
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  set(${var} ${sources} PARENT_SCOPE)
endfunction()

# moetail_room(NAME SOURCES ... LINK ... [LIBRARY] [PROTOCOL] [PARTS n | APART]): target moetail_NAME. LIBRARY: part of
# libmoetail, an object library; without it the room is a static library. PROTOCOL: compiled once more for every safeguard
# control (cmake/Safeguards.cmake). A room without sources is an interface library, so that it can be drawn before it is
# furnished.
# A room is compiled as one translation unit, or as n of them: what it includes (fmt, CLI11, nlohmann's JSON) costs several
# times its own code, and is then paid once. So a name in an unnamed namespace is unique within its room. APART: each source by
# itself. Sources that Highway includes again for each target stay out of the unit, and so do those with compile definitions of
# their own.
function(moetail_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIBRARY;PROTOCOL;APART" "PARTS" "SOURCES;LINK")
  if(NOT arg_SOURCES)
    add_library(moetail_${name} INTERFACE)
    target_link_libraries(moetail_${name} INTERFACE ${arg_LINK})
    return()
  endif()
  if(arg_LIBRARY)
    set(kind OBJECT)
  else()
    set(kind STATIC)
  endif()
  add_library(moetail_${name} ${kind} ${arg_SOURCES})
  if(MOETAIL_UNITY AND NOT arg_APART)
    set(parts 1)
    if(arg_PARTS)
      set(parts ${arg_PARTS})
    endif()
    foreach(source IN LISTS arg_SOURCES)
      cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
      if(EXISTS ${path})
        file(STRINGS ${path} included_again REGEX "^#include <hwy/foreach_target.h>" LIMIT_COUNT 1)
        if(included_again)
          set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
        endif()
      endif()
    endforeach()
    list(LENGTH arg_SOURCES count)
    math(EXPR batch_size "(${count} + ${parts} - 1) / ${parts}")
    set_target_properties(moetail_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch_size})
  endif()
  target_link_libraries(moetail_${name} PUBLIC ${arg_LINK} PRIVATE moetail_flags)
  if(arg_LIBRARY)
    set_property(GLOBAL APPEND PROPERTY MOETAIL_LIBRARY_ROOMS moetail_${name})
  endif()
  if(arg_PROTOCOL)
    set_property(GLOBAL APPEND PROPERTY MOETAIL_PROTOCOL_SOURCES ${arg_SOURCES})
  elseif(arg_LIBRARY)
    set_property(GLOBAL APPEND PROPERTY MOETAIL_PLAIN_ROOMS moetail_${name})
  endif()
endfunction()
