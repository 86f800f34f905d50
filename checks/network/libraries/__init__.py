"""Communication libraries beside NCCL: HCCL, oneCCL, NVSHMEM, symmetric memory."""
