# The engines beside the binary of the build tree, and the relocatable tree of `make install`:
#   bin/tidemark  bin/tritonserver  lib/tidemark/engines/…  share/doc/tidemark/…
# The binary looks in <its folder>/engines, then in <its folder>/../lib/tidemark/engines.
file(CREATE_LINK ${TIDEMARK_DEPS}/engines ${CMAKE_BINARY_DIR}/engines SYMBOLIC)

if(TARGET tidemark)
  install(TARGETS tidemark RUNTIME DESTINATION bin)
  install(CODE "
    file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin\")
    file(CREATE_LINK tidemark \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/tritonserver\" SYMBOLIC)")
endif()
# Headers, the CMake package and the front ends of other frameworks serve the build only.
install(DIRECTORY ${TIDEMARK_DEPS}/engines/ DESTINATION lib/tidemark/engines OPTIONAL USE_SOURCE_PERMISSIONS
  PATTERN ".stamp" EXCLUDE
  PATTERN "include" EXCLUDE
  PATTERN "cmake" EXCLUDE
  REGEX "libopenvino_(c|gguf_frontend|jax_frontend|paddle_frontend|pytorch_frontend|tensorflow_frontend|tensorflow_lite_frontend)\\.so" EXCLUDE
  PATTERN "libtbbmalloc_proxy*" EXCLUDE)
foreach(document LICENSE README.md CHANGELOG.md SECURITY.md)
  install(FILES ${CMAKE_SOURCE_DIR}/${document} DESTINATION share/doc/tidemark OPTIONAL)
endforeach()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION share/doc/tidemark)
