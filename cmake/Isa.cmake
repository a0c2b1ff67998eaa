# One translation unit per instruction set: the suffix of a file's name says what it may use.
#
# Everything else is compiled for the baseline, so code behind these suffixes is reached only through the dispatch on CPU
# flags (base/cpu.h). A file for another architecture than the target's is left out of the build; the table that lists
# the variants guards its rows with TD_X86_64 or the like.

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" td_processor)
if(td_processor MATCHES "^(x86_64|amd64)$")
  set(td_arch x86_64)
elseif(td_processor MATCHES "^(aarch64|arm64)$")
  set(td_arch aarch64)
else()
  set(td_arch other)
endif()

set(td_isa_avx2_flags -mavx2 -mfma -mf16c -mbmi -mbmi2)
set(td_isa_avxvnni_flags ${td_isa_avx2_flags} -mavxvnni)
set(td_isa_avx512_flags ${td_isa_avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
set(td_isa_avx512bf16_flags ${td_isa_avx512_flags} -mavx512bf16)
set(td_isa_amx_flags ${td_isa_avx512bf16_flags} -mamx-tile -mamx-int8 -mamx-bf16)
set(td_isa_neon_flags "") # part of armv8-a
set(td_isa_neondot_flags -march=armv8.2-a+dotprod+fp16)

set(td_isa_x86_64 avx2 avxvnni avx512 avx512bf16 amx)
set(td_isa_aarch64 neon neondot)

# td_isa_source(FILE OUT): gives FILE the flags of its suffix; OUT says whether this target can use the file at all.
function(td_isa_source file out)
  set(${out} ON PARENT_SCOPE)
  if(file MATCHES "_([a-z0-9]+)\\.c$")
    set(isa ${CMAKE_MATCH_1})
    if(isa IN_LIST td_isa_x86_64 OR isa IN_LIST td_isa_aarch64)
      if(isa IN_LIST td_isa_${td_arch})
        set_property(SOURCE ${file} APPEND PROPERTY COMPILE_OPTIONS ${td_isa_${isa}_flags})
      else()
        set(${out} OFF PARENT_SCOPE)
      endif()
    endif()
  endif()
endfunction()
