"""The names of torch.distributed and torch.nn.parallel, of torch 2.2 to 2.13, as the modules list them."""

from __future__ import annotations

DISTRIBUTED = frozenset(
    """
    AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig BarrierOptions BroadcastOptions
    BuiltinCommHookType DebugLevel DeviceMesh DistBackendError DistError DistNetworkError DistStoreError FileStore
    GatherOptions GradBucket GroupMember GroupName HashStore Logger P2POp PrefixStore ProcessGroup ProcessGroupGloo
    QueueEmptyError RankType ReduceOp ReduceOptions ReduceScatterOptions Reducer ScatterOptions Store TCPStore Work
    algorithms all_gather all_gather_coalesced all_gather_into_tensor all_gather_multigpu all_gather_object
    all_gather_single all_reduce all_reduce_coalesced all_reduce_multigpu all_to_all all_to_all_single autograd
    barrier batch_isend_irecv breakpoint broadcast broadcast_multigpu broadcast_object_list c10d_logger config
    constants default_pg_timeout deprecated destroy_process_group device_mesh distributed_c10d gather gather_object
    get_backend get_backend_config get_debug_level get_default_backend_for_device get_global_rank get_group_rank
    get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size group init_device_mesh
    init_process_group irecv is_available is_backend_available is_gloo_available is_initialized is_mpi_available
    is_nccl_available is_torchelastic_launched is_ucc_available is_xccl_available isend log logging logging_handlers
    monitored_barrier new_group new_subgroups new_subgroups_by_enumeration record_comm recv recv_object_list reduce
    reduce_multigpu reduce_op reduce_scatter reduce_scatter_multigpu reduce_scatter_single reduce_scatter_tensor
    register_rendezvous_handler remote_device rendezvous rpc scatter scatter_object_list send send_object_list
    set_debug_level set_debug_level_from_env shrink_group split_group supports_complex sys timedelta torch traceback
    typing utils
    """.split()
)
PARALLEL = frozenset(
    "DataParallel DistributedDataParallel DistributedDataParallelCPU comm data_parallel distributed gather"
    " parallel_apply replicate replicas scatter scatter_gather".split()
)

OFFERED = {
    "torch.distributed": (
        "ReduceOp", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
        "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather",
        "gather_object", "get_backend", "get_process_group_ranks", "get_rank", "get_world_size", "init_process_group",
        "irecv", "is_initialized", "is_torchelastic_launched", "isend", "monitored_barrier", "new_group", "recv",
        "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
    ),
    "torch.nn": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "DataParallel", "GroupNorm", "LayerNorm", "SyncBatchNorm",
    ),
    "torch.nn.parallel": ("DataParallel", "DistributedDataParallel", "data_parallel", "parallel_apply", "replicate"),
}  # fmt: skip
"""By module, the names that slips are slips of: those that torch 2.2 to 2.13 all have."""
