# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where: both libraries, the public headers, tandem.pc, the CMake package;
# the program with its manual page and completion.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(td_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tandem)

# Two export sets: the shared library needs nothing else at link time, the static one does, and is
# offered only where those libraries are found.
install(TARGETS tandem EXPORT TandemTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tandem_static EXPORT TandemStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION ${td_cmake_dir})
install(EXPORT TandemStaticTargets NAMESPACE Tandem:: DESTINATION ${td_cmake_dir})

if(td_mpi_modules)
  install(TARGETS ${td_mpi_modules} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tandem)
endif()

install(TARGETS tandem_cmd RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_BINARY_DIR}/tandem.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/tandem.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME tandem)
install(FILES ${CMAKE_BINARY_DIR}/_tandem
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${CMAKE_BINARY_DIR}/tandem.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

configure_package_config_file(cmake/TandemConfig.cmake.in ${CMAKE_BINARY_DIR}/TandemConfig.cmake
  INSTALL_DESTINATION ${td_cmake_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TandemConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TandemConfig.cmake ${CMAKE_BINARY_DIR}/TandemConfigVersion.cmake
  cmake/FindOneDNN.cmake
  DESTINATION ${td_cmake_dir})

# Paths are relative to where the .pc file lies, so that an installed tree can be moved.
file(RELATIVE_PATH td_pc_prefix /usr/${CMAKE_INSTALL_LIBDIR}/pkgconfig /usr)
configure_file(cmake/tandem.pc.in ${CMAKE_BINARY_DIR}/tandem.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
