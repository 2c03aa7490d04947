# SPDX-License-Identifier: Apache-2.0
# How a test becomes a line in ctest.

# What every test program links. Order matters: verify's static library may name engine hooks.
add_library(moetail_test_deps INTERFACE)
target_link_libraries(moetail_test_deps INTERFACE moetail_flags moetail_root moetail_verify rapidcheck GTest::gmock
                                                  GTest::gtest GTest::gtest_main nlohmann_json::nlohmann_json)
target_include_directories(moetail_test_deps INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# Test sources are long to compile and short to run; what they test is a library and optimized.
target_compile_options(moetail_test_deps INTERFACE $<$<NOT:$<CONFIG:Debug>>:-O1> -g1)
target_compile_definitions(moetail_test_deps INTERFACE MOETAIL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
if(TARGET moetail_cli)
  target_compile_definitions(moetail_test_deps INTERFACE MOETAIL_CLI="$<TARGET_FILE:moetail_cli>")
endif()

# Test programs that a sanitizer build leaves out, so that asan and tsan stay under five minutes together on two cores.
# verify is not shipped, cli is thin; what runs no thread has no race, and explore switches stacks.
if(MOETAIL_SANITIZE STREQUAL "thread")
  set(MOETAIL_TESTS_LEFT_OUT "^(cli|verify|io|explore)_")
elseif(MOETAIL_SANITIZE)
  set(MOETAIL_TESTS_LEFT_OUT "^(cli|verify|explore)_")
else()
  set(MOETAIL_TESTS_LEFT_OUT "^$")
endif()

# moetail_gtest(TARGET [LABELS ...]): every case of the program becomes a test of ctest. Sanitizer builds leave out
# the cases whose name ends in AtFullSize: they take minutes there and run nothing that the small ones do not.
function(moetail_gtest target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LABELS")
  set(filter "")
  if(MOETAIL_SANITIZE)
    set(filter TEST_FILTER "-*AtFullSize*")
  endif()
  gtest_discover_tests(${target} ${filter} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${arg_LABELS}")
endfunction()

# moetail_script_test(NAME COMMAND ...): a test that is a Python script; exit status 77 is a skip.
function(moetail_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "COMMAND")
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# moetail_cuda_options(VAR): what a compile check is told of the CUDA toolkit: where it is, and whether it has to be there.
function(moetail_cuda_options var)
  find_package(CUDAToolkit QUIET)
  set(options "")
  if(CUDAToolkit_FOUND)
    list(APPEND options --cuda-bin ${CUDAToolkit_BIN_DIR} --cuda-lib ${CUDAToolkit_LIBRARY_DIR})
  endif()
  if(MOETAIL_CUDA)
    list(APPEND options --required)
  endif()
  set(${var} ${options} PARENT_SCOPE)
endfunction()
