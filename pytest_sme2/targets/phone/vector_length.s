// A whole program for any 64-bit Arm Linux, because a shell cannot ask for the vector length.
    mov x0, #64                 // PR_SME_GET_VL
    mov x1, #0
    mov x2, #0
    mov x3, #0
    mov x4, #0
    mov x8, #167                // prctl
    svc #0
    mov x19, x0
    mov x0, #63                 // PR_SME_SET_VL, which changes this process alone
    mov x1, #256                // no vector is longer; the kernel chooses the longest there is
    svc #0
    stp x19, x0, [sp, #-16]!
    mov x0, #1
    mov x1, sp
    mov x2, #16
    mov x8, #64                 // write
    svc #0
    mov x0, #0
    mov x8, #93                 // exit
    svc #0
