# SPDX-License-Identifier: Apache-2.0
# Negative controls: the rooms that use the protocol are built once more with one safeguard switched off, and the test
# named after that safeguard must then fail by an assertion. A green test proves nothing about a race without this.

# moetail_safeguard_control(NAME TEST SOURCE): the test Safeguard.TEST of tests/SOURCE, without the safeguard NAME.
function(moetail_safeguard_control name test source)
  get_property(sources GLOBAL PROPERTY MOETAIL_PROTOCOL_SOURCES)
  get_property(plain_rooms GLOBAL PROPERTY MOETAIL_PLAIN_ROOMS)
  set(target without_${name})
  # Its own objects come first on the link line, so that an inline function which verify's library also holds is
  # taken from here, with the safeguard off.
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${source} ${sources})
  string(TOUPPER MOETAIL_WITHOUT_${name} switch)
  target_compile_definitions(${target} PRIVATE ${switch}=1 MOETAIL_VERSION="${PROJECT_VERSION}")
  # The rooms as one translation unit: their headers cost more than their code, four times over. A name in an unnamed
  # namespace must therefore be unique within them.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/${source} PROPERTIES
                              SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${target} PRIVATE ${plain_rooms} moetail_test_deps hwy::hwy fmt::fmt Threads::Threads)
  moetail_script_test(control.${name} COMMAND
    ${PROJECT_SOURCE_DIR}/tools/expect_failure.py --test Safeguard.${test} -- $<TARGET_FILE:${target}>)
endfunction()
