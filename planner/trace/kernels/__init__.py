"""What kernels of a device do that torch's rules for fake tensors do not say.

kernel_results    results as kernels give them          layout_results, loss_results, recurrence_results; memory_format
attention_choice  which attention CUDA takes            cuda_attention, flex_attention
cuda_recurrence   recurrent layers by cuDNN or cells    cuda_cells, packed_sequences, packed_layers; onednn_workspace
autocast_lists    what CUDA's autocast casts            autocast_policies; replaced_operators
"""
