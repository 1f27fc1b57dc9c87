# Every library we stand on: Debian's by package, libtorch by path from the pinned wheel.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(GTest CONFIG REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)

# TorchConfig.cmake would add foreign rpaths, unused macros and, in a CUDA wheel, a GPU detection that fails without a
# toolkit. The wheel's headers and four libraries are all that is needed.
set(TRIREME_TORCH_VERSION 2.13.0)
file(GLOB torch_root ${TRIREME_VENV}/lib/python3.*/site-packages/torch)
list(LENGTH torch_root found)
if(NOT found EQUAL 1)
  message(FATAL_ERROR "no torch wheel below TRIREME_VENV = ${TRIREME_VENV}; ./trireme version installs it")
endif()
file(STRINGS ${torch_root}/version.py torch_version REGEX "^__version__")
if(NOT torch_version MATCHES "'${TRIREME_TORCH_VERSION}([+]|')")
  message(FATAL_ERROR "torch ${TRIREME_TORCH_VERSION} is pinned, ${torch_root} has ${torch_version}")
endif()
file(GLOB torch_gomp ${torch_root}/lib/libgomp*.so*)

add_library(torch_wheel INTERFACE)
target_include_directories(torch_wheel SYSTEM INTERFACE ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_compile_definitions(torch_wheel INTERFACE USE_DISTRIBUTED USE_C10D_GLOO AT_PER_OPERATOR_HEADERS)
# A CUDA wheel's libtorch_cpu finds its own dependencies at run time; the linker need not follow them.
target_link_options(torch_wheel INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(torch_wheel INTERFACE
  ${torch_root}/lib/libtorch_cpu.so ${torch_root}/lib/libc10.so ${torch_gomp})
