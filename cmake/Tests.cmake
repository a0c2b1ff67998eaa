# Finds the tests and registers each as a process of its own.
#
#   tests/<dir>/test_x.c     executable, linked with tests/support/*.c and everything static; ctest name <dir>/x
#   tests/<dir>/test_x.sh    run by sh
#   tests/<dir>/test_x.py    run by .venv/bin/python (scripts/run-python), with tests/support on its path
#   tests/fuzz/fuzz_x.c      LLVMFuzzerTestOneInput; with the fuzz preset build/fuzz/fuzz_x, else a replay of
#                            tests/fuzz/seeds/x/ (and of simple mutations of them) as test fuzz/x
#
# The first ten lines of a test may say (in a C or a # comment):
#   timeout: 600             seconds, instead of 120
#   labels: model slow       more labels; its folder always is one. `make test-quick` leaves out model and slow,
#                            `make test-tsan` runs the label threads; serial runs alone
#
# Exit codes: 0 passed, 77 skipped (after a line `SKIP: reason`), others failed. A last line `N passed, N failed, N skipped`
# is counted as such by scripts/run-tests. The environment of every test:
#   TREADLE          the command            TREADLE_SOURCE   the source tree
#   TREADLE_BUILD    the build tree         XDG_CACHE_HOME   a cache inside the build tree
# TREADLE_SHARED (independent test data) and TREADLE_MODELS (fetched models, default models/) come from the caller.

set(test_timeout_scale 1)
if(TREADLE_SANITIZE OR TREADLE_FUZZ)
  set(test_timeout_scale 4)
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(test_timeout_scale 3)
endif()

set(tests_dir ${PROJECT_SOURCE_DIR}/tests)
file(GLOB support_sources CONFIGURE_DEPENDS ${tests_dir}/support/*.c)
if(support_sources)
  add_library(treadle_test_support STATIC ${support_sources})
  target_include_directories(treadle_test_support PUBLIC ${tests_dir} ${tests_dir}/support)
  target_compile_definitions(treadle_test_support PRIVATE TD_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(treadle_test_support PUBLIC treadle_build treadle-compile treadle-static)
endif()

add_custom_target(threads-tests) # builds what `make test-tsan` runs

# td_test_name(FILE OUT_NAME OUT_DIR): tests/base/test_x.c -> base/x and base.
function(td_test_name file out_name out_dir)
  cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${tests_dir} OUTPUT_VARIABLE rel)
  string(REGEX REPLACE "(^|/)(test|fuzz)_([^/]*)\\.[a-z]+$" "\\1\\3" name ${rel})
  string(REGEX MATCH "^[^/]+" dir ${rel})
  set(${out_name} ${name} PARENT_SCOPE)
  set(${out_dir} ${dir} PARENT_SCOPE)
endfunction()

# td_test_wanted(DIR OUT): a partial build has the tests of its modules only.
function(td_test_wanted dir out)
  set(${out} ON PARENT_SCOPE)
  if(TREADLE_PARTIAL AND NOT dir IN_LIST TREADLE_MODULES)
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# td_register(NAME DIR FILE TARGET command...): add_test with timeout and labels read from FILE. TARGET may be "".
function(td_register name dir file target)
  set(timeout 120)
  set(labels ${dir})
  file(STRINGS ${file} head LIMIT_INPUT 4096)
  list(SUBLIST head 0 10 head)
  foreach(line IN LISTS head)
    if(line MATCHES "timeout: *([0-9]+)")
      set(timeout ${CMAKE_MATCH_1})
    endif()
    if(line MATCHES "labels: *([a-z0-9_ -]*[a-z0-9_-])")
      string(REPLACE " " ";" more "${CMAKE_MATCH_1}")
      list(APPEND labels ${more})
    endif()
  endforeach()
  math(EXPR timeout "${timeout} * ${test_timeout_scale}")
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} SKIP_RETURN_CODE 77 LABELS "${labels}" ENVIRONMENT
    "TREADLE=${PROJECT_BINARY_DIR}/bin/treadle;TREADLE_BUILD=${PROJECT_BINARY_DIR};TREADLE_SOURCE=${PROJECT_SOURCE_DIR};XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/test-cache")
  if("serial" IN_LIST labels)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  if(target AND "threads" IN_LIST labels)
    add_dependencies(threads-tests ${target})
  endif()
endfunction()

file(GLOB_RECURSE c_tests CONFIGURE_DEPENDS ${tests_dir}/test_*.c)
foreach(file IN LISTS c_tests)
  td_test_name(${file} name dir)
  td_test_wanted(${dir} wanted)
  if(wanted)
    string(MAKE_C_IDENTIFIER "test_${name}" target)
    add_executable(${target} ${file})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_link_libraries(${target} PRIVATE treadle_test_support)
    td_register(${name} ${dir} ${file} ${target} ${target})
  endif()
endforeach()

file(GLOB_RECURSE sh_tests CONFIGURE_DEPENDS ${tests_dir}/test_*.sh)
foreach(file IN LISTS sh_tests)
  td_test_name(${file} name dir)
  td_test_wanted(${dir} wanted)
  if(wanted)
    td_register(${name}.sh ${dir} ${file} "" sh ${file})
  endif()
endforeach()

file(GLOB_RECURSE py_tests CONFIGURE_DEPENDS ${tests_dir}/test_*.py)
foreach(file IN LISTS py_tests)
  td_test_name(${file} name dir)
  td_test_wanted(${dir} wanted)
  if(wanted)
    td_register(${name}.py ${dir} ${file} "" sh ${PROJECT_SOURCE_DIR}/scripts/run-python ${file})
  endif()
endforeach()

add_custom_target(fuzz-targets)

# Fuzz targets may use any module, so a partial build has none of them.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${tests_dir}/fuzz/fuzz_*.c)
foreach(file IN LISTS fuzz_sources)
  if(TREADLE_PARTIAL)
    continue()
  endif()
  cmake_path(GET file STEM target)
  string(REGEX REPLACE "^fuzz_" "" name ${target})
  add_executable(${target} ${file})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  target_link_libraries(${target} PRIVATE treadle_build treadle-compile treadle-static)
  add_dependencies(fuzz-targets ${target})
  if(TREADLE_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${target} PRIVATE ${tests_dir}/fuzz/standalone.c)
    td_register(fuzz/${name} fuzz ${file} ${target} ${target} ${tests_dir}/fuzz/seeds/${name})
  endif()
endforeach()
