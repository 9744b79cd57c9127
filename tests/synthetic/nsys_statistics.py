"""The output of `nsys stats`: tables as CSV, and one in columns."""

KERN_SUM = """\
Processing [/home/somebody/report.sqlite] with [cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
70.9,83312000,96,867833.3,1056000.0,285984,1091000,304322.0,ampere_sgemm_128x64_tn
4.4,4968000,38,130736.8,130736.0,128896,134177,870.0,"void at::native::vectorized_elementwise_kernel<(int)4, MulFunctor<float>>(int, T2, T3)"
"""  # noqa: E501
MEM_SUM = """
Time (%),Total Time (us),Count,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Operation
100.0,"1,500.5",3,500.2,500.2,400,600,10.0,[CUDA memcpy Host-to-Device]
"""
API_SUM = """
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,999999999,12,1.0,1.0,1,1,0.0,cudaLaunchKernel
"""
#: The same table as `nsys stats` prints it without a format: names are cut to 100 characters.
KERN_COLUMNS = """\
 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)   Med (ns)   Min (ns)  Max (ns)   StdDev (ns)                  Name
 --------  ---------------  ---------  ---------  ---------  --------  ---------  -----------  ------------------------------------
     70.9       83,312,000         96  867,833.3  1,056,000    285,984  1,091,000    304,322.0  ampere_sgemm_128x64_tn
      4.4        4,968,000         38  130,736.8    130,736    128,896    134,177        870.0  void at::native::vectorized_elementw…
"""  # noqa: E501
NVTX = """\
NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Kernel Name
:step,PushPop,7,7,4,20,500000,1,1,1,1,0,gemm
:step,PushPop,7,7,4,4,40000,1,1,1,1,0,"copy<int, 4>"
:forward,PushPop,7,7,4,12,300000,1,1,1,1,0,gemm
:attention,PushPop,7,7,8,8,200000,1,1,1,1,0,gemm
optimizer step,PushPop,7,7,4,4,40000,1,1,1,1,0,"copy<int, 4>"
"""
