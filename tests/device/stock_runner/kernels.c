/* A static build carries its kernels; these have their names, so that a binary can be told apart
   by its symbols as a real one can. */
void xnn_f32_gemm_minmax_ukernel_6x8__neonfma(void) {}

#ifdef XNNPACK_ENABLE_ARM_SME
void xnn_pf32_gemm_minmax_ukernel_32x32__neonsme(void) {}
#endif

#ifdef XNNPACK_ENABLE_ARM_SME2
void xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2(void) {}
#endif
