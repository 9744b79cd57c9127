"""The class of a kernel's work, from names that PyTorch's profiler and nsys have reported."""

import pytest

from runner.analysis.kernels import kernel_class

NAMES = {
    "matmul": (
        "ampere_sgemm_128x64_tn",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_execute_kernel__5x_cublas",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas",
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_NNN",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x3_tn_align8>"
        "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_64x3_tn_align8::Params)",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false>(float*)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(float)",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const> > >(float)",
        "triton_tem_fused_mm_3",
        "aten::bmm",
        "aten::addmm",
    ),
    "attention": (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
        "cutlass::bfloat16_t>, false, true, false, false, true, true, false, false>(pytorch_flash::Flash_fwd_params)",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>(Params)",
        "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>(Flash_bwd_params)",
        "void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64>>(Flash_bwd_params, int)",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80>)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0",
        "triton_tem_fused_flex_attention_0",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    ),
    "softmax": (
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForwardSmem<4, float, float, float, "
        "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue, long>(float*, float const*, long)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, Epilogue>(float*)",
        "triton_per_fused__softmax_masked_fill_2",
        "aten::_log_softmax_backward_data",
    ),
    "normalisation": (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 64u, 1u>(long)",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_1",
        "aten::_fused_rms_norm",
    ),
    "elementwise": (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float, float, float, "
        "at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>(int, T2, T3)",
        "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<"
        "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>>("
        "at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)",
        "void at::native::triu_tril_kernel<bool, int, false, 2, false>(Params)",
        "triton_poi_fused_mul_silu_backward_4",
        "aten::silu_backward",
        "aten::mul_",
    ),
    "reduction": (
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)",
        "triton_red_fused_sum_2",
        "graph_0_cpp_fused_add_div_expand_mul_pow_sum_view_2",
        "aten::sum",
    ),
    "optimizer": (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >(float)",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, "
        "at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(float)",
        "triton_for_fused_0",
        "aten::_fused_adamw_",
    ),
    "communication": (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_ReduceScatter_RING_LL_Sum_bf16",
        "c10d::allreduce_",
    ),
    "copy or cast": (
        "Memcpy DtoD (Device -> Device)",
        "[CUDA memcpy Host-to-Device]",
        "Memset (Device)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >()",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
        "::{lambda()#3}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul>, 4>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(Iterator&)>(int)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<4u>, unsigned int, 4, 64, 64>(char*)",
        "triton_poi_fused__to_copy_5",
        "aten::copy_",
    ),
    "other": (
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>()",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(long const*)",
        "autograd::engine::evaluate_function: SoftmaxBackward0",
        "MmBackward0",
        "aten::view",
        "<script>alert(1)</script>",
    ),
}


@pytest.mark.parametrize("known", NAMES)
def test_kernels_are_classed_by_their_names(known: str) -> None:
    assert {name: kernel_class(name) for name in NAMES[known]} == dict.fromkeys(NAMES[known], known)


def test_kernels_in_the_optimizer_phase_belong_to_the_optimizer() -> None:
    assert kernel_class("aten::addcdiv_", phase="optimizer") == "optimizer"
    assert kernel_class("aten::addcdiv_", phase="forward") == "elementwise"
    assert kernel_class("Memset (Device)", phase="optimizer") == "copy or cast"
