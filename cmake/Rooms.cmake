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

# moetail_room(NAME SOURCES ... LINK ... [LIBRARY] [PROTOCOL]): target moetail_NAME. LIBRARY: part of libmoetail, an
# object library; without it the room is a static library. PROTOCOL: compiled once more for every safeguard control
# (cmake/Safeguards.cmake). A room without sources is an interface library, so that it can be drawn before it is
# furnished.
function(moetail_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIBRARY;PROTOCOL" "" "SOURCES;LINK")
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
