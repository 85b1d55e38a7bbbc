"""All processes: another program takes the GPU, and a CPU answers under the same name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.acceptance.deployment import command, command_environment, deployed

MODEL = {
    "name": "llama",
    "footprint_mb": 5000,
    "load_s": 3,
    "first_token_s": 0.2,
    "tokens_per_s": 100,
    "cpu_factor": 4,
}
CPU = "llama--headstart-cpu"
CONFIG = """
scheduler: {mode: active}
models:
  llama:
    scheduling_profile: {gpu_acceleration_factor: 4}
    variants: [{cpu: true, threads: 4}]
"""
HELD = {"kind": "memory", "bytes": 6000 * 1024**2}


async def test_a_cpu_answers_while_another_program_holds_the_gpu(tmp_path: Path):
    file = tmp_path / "headstart.yaml"
    file.write_text(CONFIG)
    config = {"HEADSTART_CONFIG": str(file)}
    services = ("gateway", "controller")
    async with deployed([MODEL], capacity_mb=8000, services=services, environ=config) as office:
        localai = office.stack.emulator_url

        async def is_made() -> bool:
            listed = await office.ask("GET", f"{office.stack.gateway_url}/v1/models?variants=show")
            return CPU in listed.text

        await office.until(is_made, "the rung is made")
        listed = await office.ask("GET", f"{office.stack.gateway_url}/v1/models")
        assert [model["id"] for model in listed.json["data"]] == ["llama"]
        held = await office.ask("POST", f"{localai}/emulator/faults", json=HELD)
        assert held.status == 200

        async def is_answered_by_a_cpu() -> bool:
            answer = await office.chat("llama")
            return answer.status == 200 and answer.headers["X-Headstart-Model"] == CPU

        await office.until(is_answered_by_a_cpu, "a CPU answers")
        answer = await office.chat("llama")
        assert answer.headers["X-Headstart-Decision"] == "cpu_fallback"
        assert answer.json["model"] == "llama"
        refused = await office.chat("llama", headers={"X-Headstart-Fallback": "deny"})
        # The first load may have been tried before anybody saw the other program.
        assert refused.status == 503
        assert refused.error_type in ("no_backend", "model_cooldown")
        assert refused.headers["X-Headstart-Model"] == "llama"
        process = await asyncio.create_subprocess_exec(
            *command("footprint", "--json"),
            env=command_environment(
                HEADSTART_CONFIG=str(file),
                HEADSTART_LOCALAI_URL=localai,
                REDIS_URL=office.stack.redis_url,
                HEADSTART_DATA_DIR=str(office.stack.data_dir),
            ),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        told = json.loads(said.splitlines()[-1])
        assert [one["model"] for one in told["variants"]] == [CPU]
        assert told["redis"]["headstart:"] > 0
        assert told["faults"] == []
