"""The keys of LocalAI's model files (v4.9), which may stand beside ours in an entry of models."""

from __future__ import annotations

LOCALAI_MODEL_KEYS = frozenset(
    """
    agent alias artifacts backend cache_type_k cache_type_v cfg_scale chat_template_kwargs
    compression concurrency_groups context_size cuda cutstrings debug description diffusers
    disable_log_stats disabled download_files draft_model dtype embeddings enforce_eager
    engine_args extract_regex f16 feature_flags flash_attention function gpu_layers
    gpu_memory_utilization grammar grpc known_input_modalities known_output_modalities
    known_usecases limit_mm_per_prompt limits load_format lora_adapter lora_adapters lora_base
    lora_scale lora_scales low_vram main_gpu max_model_len mcp mirostat mirostat_eta
    mirostat_tau mitm mmap mmlock mmproj n_draft name ngqa no_kv_offloading no_mulmatq numa
    options overrides parameters pii pii_detection pipeline prompt_cache_all prompt_cache_path
    prompt_cache_ro proxy quantization reasoning reasoning_effort reranking rms_norm_eps roles
    rope_scaling router step stopwords swap_space system_prompt template tensor_parallel_size
    tensor_split threads trimspace trimsuffix trust_remote_code tts type usage
    yarn_attn_factor yarn_beta_fast yarn_beta_slow yarn_ext_factor
    """.split()
)
"""All of its top-level keys but ``pinned``, which means the same here as there."""
