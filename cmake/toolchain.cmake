# ccache and mold where they are installed; strict warnings of our own; sanitizers.

find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header is named by its content and ours have no __TIME__, so ccache may trust it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Designated initializers leave fields at their defaults on purpose.
add_compile_options(-Wall -Wextra -Werror -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-fpch-preprocess)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    add_compile_options(-Wno-restrict)  # GCC PR105651: false alarm on "v" + std::to_string(i)
  endif()
endif()

if(TRIREME_SANITIZE)
  add_compile_options(-fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
endif()
