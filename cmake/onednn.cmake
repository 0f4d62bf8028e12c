# SPDX-License-Identifier: Apache-2.0
# oneDNN: convolutions and some products of the cpu backend. Without it the backend falls to its own
# kernels, and convolutions that it has none for to the reference kernels
# (src/backend/cpu/onednn_none.c).
set(TD_ONEDNN AUTO CACHE STRING "Build with oneDNN: AUTO (if it is there), ON, OFF")
set_property(CACHE TD_ONEDNN PROPERTY STRINGS AUTO ON OFF)
set(td_onednn 0)
set(td_onednn_library "")
set(td_onednn_private "") # of tandem.pc
set(td_onednn_text "no oneDNN (-DTD_ONEDNN=OFF)")
if(NOT TD_ONEDNN STREQUAL "OFF")
  find_package(OneDNN QUIET)
  if(OneDNN_FOUND)
    set(td_onednn 1)
    set(td_onednn_library DNNL::dnnl)
    set(td_onednn_private "-ldnnl -l:libgomp.so.1 ")
    set(td_onednn_text "oneDNN ${OneDNN_VERSION}")
  elseif(TD_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "TD_ONEDNN=ON, but oneDNN was not found (tools/setup installs it)")
  else()
    set(td_onednn_text "no oneDNN (not found: convolutions on processors will be slow)")
  endif()
endif()
