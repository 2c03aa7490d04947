# SPDX-License-Identifier: Apache-2.0
# Options, and the flags that every translation unit of the project is compiled with.

option(MOETAIL_TESTS "Build the tests (needs GoogleTest and RapidCheck)" ${PROJECT_IS_TOP_LEVEL})
option(MOETAIL_WERROR "Turn warnings into errors (CI does)" OFF)
option(MOETAIL_UNITY "Compile each room as one translation unit: a third of the work in a whole build, more of it after a small change" ON)
option(MOETAIL_FUZZ "Build the libFuzzer targets of tests/fuzz (needs clang)" OFF)
option(MOETAIL_CUDA
       "Require nvcc and NVRTC: a missing CUDA compiler is then a failed compile check instead of a skipped one. \
The CUDA engine itself is always built" OFF)
set(MOETAIL_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, 'address,undefined' or 'thread'")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

find_program(MOETAIL_CCACHE ccache)
mark_as_advanced(MOETAIL_CCACHE)
foreach(lang IN ITEMS C CXX)
  if(MOETAIL_CCACHE AND NOT CMAKE_${lang}_COMPILER_LAUNCHER)
    set(CMAKE_${lang}_COMPILER_LAUNCHER ${MOETAIL_CCACHE})
  endif()
endforeach()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Python3 COMPONENTS Interpreter)

# Linked by every target of ours, PRIVATE: what it says concerns our build and is not exported.
add_library(moetail_flags INTERFACE)
# Contraction is written out (std::fma) where the numeric contract asks for it, and must not happen anywhere else.
target_compile_options(moetail_flags INTERFACE -Wall -Wextra -Wshadow -Wpedantic -ffp-contract=off)
if(MOETAIL_WERROR)
  target_compile_options(moetail_flags INTERFACE -Werror)
endif()
set(sanitizers ${MOETAIL_SANITIZE})
if(MOETAIL_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "MOETAIL_FUZZ = ON with compiler ${CMAKE_CXX_COMPILER_ID}: accepted is clang (preset fuzz)")
  endif()
  set(sanitizers "address,undefined")
  target_compile_options(moetail_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(sanitizers)
  target_compile_options(moetail_flags INTERFACE -fsanitize=${sanitizers} -fno-sanitize-recover=all
                                                 -fno-omit-frame-pointer)
  target_link_options(moetail_flags INTERFACE -fsanitize=${sanitizers})
  # With sanitizers GCC 12 warns of variables inside its own <regex>; the plain build still looks for this.
  target_compile_options(moetail_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(MOETAIL_SANITIZE STREQUAL "thread")
  # The race detector of GCC 12 cannot map its shadow where the kernel randomizes too many address bits.
  set(CMAKE_CROSSCOMPILING_EMULATOR ${PROJECT_SOURCE_DIR}/tools/fixed_addresses.sh)
endif()
