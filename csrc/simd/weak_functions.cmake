# cmake -DNM=nm -DOBJECTS=a.o;b.o -P weak_functions.cmake: fail if an object has a weak function.
#
# The linker keeps one definition of a weak function: of an inline function or a template. If it kept the one
# that was compiled for AVX-512, processors without AVX-512 could not run the function. So functions in the
# kernels of an instruction set have internal linkage.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ W [^\n]+" functions "${symbols}")
  list(FILTER functions EXCLUDE REGEX "__clang_call_terminate$") # has no instructions of the set
  if(functions)
    list(JOIN functions "\n  " functions)
    message(FATAL_ERROR "${object} has functions that the linker may use for every processor:\n  ${functions}")
  endif()
endforeach()
