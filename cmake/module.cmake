# trireme_module(<folder> [TORCH] [HOT] [DEPENDS <folder>…] [LIBRARIES <target>…])
#
# The library trireme_<folder> of all sources below src/<folder>, and the GoogleTest binary <folder>_test of its
# *_test.cc files, when there are any. There is one precompiled header for TORCH folders and one for the others. HOT
# folders have loops over elements of their own; the others, and all tests, are compiled with -O1 in Release, which is a
# sixth less to compile.

# Templates that a precompiled header leaves open are instantiated again in every file: ATen/ATen.h in place of
# Functions.h would cost each of them a second, autograd's headers another, CLI11 four, and few need them.
set(plain_pch_headers <nlohmann/json.hpp> <algorithm> <array> <chrono> <cmath> <cstring> <filesystem> <functional> <map>
  <memory> <mutex> <optional> <set> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>)

add_library(plain_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(plain_pch PRIVATE nlohmann_json::nlohmann_json Threads::Threads)
target_precompile_headers(plain_pch PRIVATE ${plain_pch_headers})

add_library(torch_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
target_link_libraries(torch_pch PRIVATE torch_wheel nlohmann_json::nlohmann_json Threads::Threads)
target_precompile_headers(torch_pch PRIVATE <ATen/Functions.h> <ATen/TensorOperators.h> ${plain_pch_headers})

function(trireme_precompiled target pch)
  target_precompile_headers(${target} REUSE_FROM ${pch})
  target_compile_options(${target} PRIVATE -fPIC)  # as the header; executables would have -fPIE
endfunction()

function(trireme_use_torch target)
  target_link_libraries(${target} PUBLIC torch_wheel)
  trireme_precompiled(${target} torch_pch)
endfunction()

set(lightly_optimized $<$<CONFIG:Release>:-O1>)

function(trireme_module folder)
  cmake_parse_arguments(arg "TORCH;HOT" "" "DEPENDS;LIBRARIES" ${ARGN})
  set(dir ${PROJECT_SOURCE_DIR}/src/${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM arg_DEPENDS PREPEND trireme_)

  # Python that we run in workers is part of the binary: x.py becomes "<folder>/x.py.h", the text kXPy.
  file(GLOB_RECURSE scripts CONFIGURE_DEPENDS ${dir}/*.py)
  foreach(script ${scripts})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
    file(READ ${script} text)
    get_filename_component(name ${script} NAME_WE)
    string(REPLACE "_" ";" parts ${name})
    set(constant k)
    foreach(part ${parts})
      string(SUBSTRING ${part} 0 1 first)
      string(SUBSTRING ${part} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND constant ${first}${rest})
    endforeach()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src ${script})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/${path}.h @ONLY CONTENT
"#pragma once\n#include <string_view>\nnamespace trireme {\ninline constexpr std::string_view @constant@Py = R\"python(@text@)python\";\n}\n")
  endforeach()

  # Loops compiled once per instruction set (Highway): without libtorch, and unrolled.
  set(loops ${sources})
  list(FILTER loops INCLUDE REGEX "/simd/[^/]+\\.cc$")
  set_source_files_properties(${loops} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")

  set(library trireme_${folder})
  if(sources)
    add_library(${library} STATIC ${sources})
    target_include_directories(${library} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    if(scripts)
      target_include_directories(${library} PRIVATE ${PROJECT_BINARY_DIR}/generated)
    endif()
    target_link_libraries(${library} PUBLIC
      ${arg_DEPENDS} ${arg_LIBRARIES} nlohmann_json::nlohmann_json Threads::Threads)
    if(arg_TORCH)
      trireme_use_torch(${library})
    else()
      trireme_precompiled(${library} plain_pch)
    endif()
    if(NOT arg_HOT)
      target_compile_options(${library} PRIVATE ${lightly_optimized})
    endif()
  else()
    add_library(${library} INTERFACE)
    target_link_libraries(${library} INTERFACE ${arg_DEPENDS})
  endif()

  if(tests)
    add_executable(${folder}_test ${tests})
    target_link_libraries(${folder}_test PRIVATE ${library} GTest::gtest_main)
    target_compile_definitions(${folder}_test PRIVATE TRIREME_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_compile_options(${folder}_test PRIVATE ${lightly_optimized})
    if(arg_TORCH)
      trireme_use_torch(${folder}_test)
    else()
      trireme_precompiled(${folder}_test plain_pch)
      set_property(GLOBAL APPEND PROPERTY TRIREME_TORCH_FREE_TEST_TARGETS ${folder}_test)
    endif()
    set_property(GLOBAL APPEND PROPERTY TRIREME_TEST_TARGETS ${folder}_test)
  endif()
endfunction()
