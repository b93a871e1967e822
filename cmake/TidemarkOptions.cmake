# Compiler options shared by every target of the product.
add_library(tidemark_options INTERFACE)
target_compile_options(tidemark_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 see uninitialised reads inside Abseil's InlinedVector that are none.
  target_compile_options(tidemark_options INTERFACE -Wno-maybe-uninitialized)
endif()
target_include_directories(tidemark_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})

if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  add_compile_options(-g1 -fno-omit-frame-pointer)
endif()
if(TIDEMARK_SANITIZE)
  add_compile_options(-fsanitize=${TIDEMARK_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${TIDEMARK_SANITIZE})
  add_compile_definitions(TIDEMARK_SANITIZED=1)
  if(TIDEMARK_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  if(TIDEMARK_SANITIZE MATCHES "thread")
    # protobuf's headers lay out maps differently where this macro is set; its library is built without it.
    add_compile_options(-U__SANITIZE_THREAD__)
    # Debian's Abseil is built without the sanitizer: our calls of its locks go through a shim that tells it about them.
    add_library(tidemark_tsan_sync STATIC ${CMAKE_SOURCE_DIR}/cmake/tsan_absl_sync.cc)
    target_link_libraries(tidemark_tsan_sync PUBLIC absl::synchronization absl::time)
    target_link_libraries(tidemark_options INTERFACE tidemark_tsan_sync)
    foreach(symbol
            _ZN4absl7debian35Mutex4LockEv
            _ZN4absl7debian35Mutex10ReaderLockEv
            _ZN4absl7debian35Mutex6UnlockEv
            _ZN4absl7debian35Mutex12ReaderUnlockEv
            _ZN4absl7debian35Mutex7TryLockEv
            _ZN4absl7debian35Mutex13ReaderTryLockEv
            _ZN4absl7debian35Mutex8LockWhenERKNS0_9ConditionE
            _ZN4absl7debian35Mutex14ReaderLockWhenERKNS0_9ConditionE
            _ZN4absl7debian35Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE
            _ZN4absl7debian35Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE
            _ZN4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE
            _ZN4absl7debian35Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE
            _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE
            _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE
            _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE
            _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE
            _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE
            _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE
            _ZN4absl7debian312Notification6NotifyEv
            _ZNK4absl7debian312Notification19WaitForNotificationEv
            _ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE
            _ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_4TimeE)
      target_link_options(tidemark_options INTERFACE -Wl,--wrap=${symbol})
    endforeach()
  endif()
  if(TIDEMARK_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-error=tsan)
  endif()
endif()
if(TIDEMARK_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
if(TIDEMARK_THREAD_SAFETY_ANALYSIS)
  add_compile_options(-Wthread-safety -Werror=thread-safety)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
  add_link_options(-fuse-ld=lld)
endif()
