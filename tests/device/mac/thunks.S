// Where the two systems call functions differently.

// A Mac passes the values behind "..." on the stack. The function NAME_ gets their address instead.
.macro variadic name, register
  .global \name
  .type \name, %function
\name:
  mov \register, sp
  b \name\()_
.endm

.text
variadic mac_printf, x1
variadic mac_fprintf, x2
variadic mac_sscanf, x2
variadic mac_open, x2
variadic mac_fcntl, x2
variadic mac_snprintf, x3
variadic mac_swprintf, x3

// Large stack frames are probed through this one, which may change no register.
  .global mac___chkstk_darwin
  .type mac___chkstk_darwin, %function
mac___chkstk_darwin:
  ret

// The address of a thread-local variable in x0. No other register may change.
.macro each_pair instruction
  \instruction x1, x2, [sp, #16]
  \instruction x3, x4, [sp, #32]
  \instruction x5, x6, [sp, #48]
  \instruction x7, x8, [sp, #64]
  \instruction x9, x10, [sp, #80]
  \instruction x11, x12, [sp, #96]
  \instruction x13, x14, [sp, #112]
  \instruction x15, x18, [sp, #128]
  \instruction q0, q1, [sp, #144]
  \instruction q2, q3, [sp, #176]
  \instruction q4, q5, [sp, #208]
  \instruction q6, q7, [sp, #240]
  \instruction q16, q17, [sp, #272]
  \instruction q18, q19, [sp, #304]
  \instruction q20, q21, [sp, #336]
  \instruction q22, q23, [sp, #368]
  \instruction q24, q25, [sp, #400]
  \instruction q26, q27, [sp, #432]
  \instruction q28, q29, [sp, #464]
  \instruction q30, q31, [sp, #496]
.endm
  .global mac__tlv_bootstrap
  .type mac__tlv_bootstrap, %function
mac__tlv_bootstrap:
  sub sp, sp, #528
  stp x29, x30, [sp]
  mov x29, sp
  each_pair stp
  bl thread_variable
  each_pair ldp
  ldp x29, x30, [sp]
  add sp, sp, #528
  ret

.section .note.GNU-stack, "", %progbits
