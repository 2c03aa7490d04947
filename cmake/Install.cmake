# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: the door, the headers it names, the libraries and find_package(moetail).
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY MOETAIL_LIBRARY_ROOMS)
if(NOT rooms)
  return()
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moetail)
set(libraries moetail)
if(TARGET moetail_c)
  list(APPEND libraries moetail_c)
endif()
install(TARGETS ${libraries} EXPORT moetail-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moetail-targets NAMESPACE moetail:: DESTINATION ${package_dir})

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/moetail DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "*.cuh")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/base ${PROJECT_SOURCE_DIR}/src/protocol ${PROJECT_SOURCE_DIR}/src/device
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moetail
        FILES_MATCHING PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/moetail-config.cmake.in
                              ${PROJECT_BINARY_DIR}/moetail-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moetail-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/moetail-config.cmake ${PROJECT_BINARY_DIR}/moetail-config-version.cmake
        DESTINATION ${package_dir})
