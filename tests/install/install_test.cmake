# SPDX-License-Identifier: Apache-2.0
# Installs the build tree `build` below `work`, builds `source`/consumer against it and runs what came out.
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${prefix} ${work}/consumer)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${prefix}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${source}/consumer -B ${work}/consumer -G ${generator}
                        -D CMAKE_PREFIX_PATH=${prefix} -D examples=${examples}
                        -D CMAKE_C_COMPILER=${c_compiler} -D CMAKE_CXX_COMPILER=${cxx_compiler}
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${work}/consumer COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${work}/consumer --output-on-failure --no-tests=error
                COMMAND_ERROR_IS_FATAL ANY)
