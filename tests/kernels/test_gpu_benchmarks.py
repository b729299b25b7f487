"""The scripts for whoever has a card for half an hour: they work, here on tiny shapes."""

import argparse
import json
import math
import os
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from difftransformer.errors import WrongCodeError
from difftransformer.models.kernels.fused import tiles

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"
ORIGIN = {"device": "cpu", "versions": {"torch": "1"}}

pytest.importorskip("triton", reason="Triton is for Linux")
pytestmark = pytest.mark.usefixtures("gpu_scripts")


def call(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "all.py"), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_question_is_answered_once(tmp_path: Path) -> None:
    options = ("--device", "cpu", "--repeats", "2", "--records", str(tmp_path))
    first = call(*options)
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith("all questions are answered\n")
    scripts = import_module("all").SCRIPTS
    lines = {name: (tmp_path / f"{name}.jsonl").read_text().splitlines() for name in scripts}
    for name, actual in lines.items():
        for line in map(json.loads, actual):
            assert line["script"] == name and line["answer"] and line["repeats"] == 2
            assert "failed" not in line["answer"], line
            assert {"torch", "triton", "python"} <= set(line["versions"])
    assert len(lines["contract"]) == 6  # of two types: two maps, one, and its log-sum-exp
    for line in map(json.loads, lines["contract"]):
        actual = line["answer"]
        assert all(actual[f"fused {way}"]["within"] for way in tiles.ways_of(1))
        assert actual["fused together"]["repeats_its_bits"]
    for actual in json.loads(lines["variants"][0])["answer"].values():
        assert actual["within"]
    bits = json.loads(lines["training"][-1])["answer"]
    assert bits == {"was_stopped": True, "same_weights": True}
    rows = [set(json.loads(line)["answer"]["seconds"]) for line in lines["attention"]]
    assert rows[0] == {
        *("fused", "padded (sdpa)", "plain fused", "plain sdpa", "lse fused", "lse sdpa")
    }
    assert rows[1] == {"fused", "fused atomic", "split (flash)"}
    second = call(*options)
    assert second.stdout == "all questions are answered\n"


def test_a_failed_question_is_recorded_and_the_rest_continues(tmp_path: Path) -> None:
    import runs

    def fails() -> dict[str, Any]:
        raise RuntimeError("no kernel\nand more")

    questions = {
        "one": fails,
        "two": lambda: {"loss": float("nan")},
        "three": lambda: {"loss": 1.0},
    }
    arguments = argparse.Namespace(
        device="cpu", repeats=2, records=tmp_path, again=False, ends=math.inf
    )
    assert runs.answer("contract", lambda setting: questions, arguments) == 0
    lines = map(json.loads, (tmp_path / "contract.jsonl").read_text().splitlines())
    actual = [line["answer"] for line in lines]
    assert actual == [{"failed": "RuntimeError: no kernel"}, {"loss": "nan"}, {"loss": 1.0}]


def test_compiling_ahead_records_answers_without_timings(tmp_path: Path) -> None:
    options = ("--device", "cpu", "--records", str(tmp_path), "--processes", "2")
    ended = call("variants", *options)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("1 of 1 asked ahead in ")
    assert [path.name for path in tmp_path.iterdir()] == ["variants.jsonl"]
    actual = json.loads((tmp_path / "variants.jsonl").read_text())["answer"]
    assert all(part["within"] for part in actual.values())
    again = call("variants", *options)
    assert again.stdout.startswith("0 of 0 asked ahead")
    late = call("contract", "tune", *options, "--minutes", "0")
    assert late.stdout.startswith("0 of 6 asked ahead")  # kernels, whose tiles the rest takes
    assert late.stdout.endswith("call `tune` without --processes, then with --adopt, then as now\n")
    late = call("contract", *options, "--minutes", "0")
    assert late.stdout.startswith("0 of 6 asked ahead")  # operations


def test_a_dead_process_is_recorded_as_a_failed_question(tmp_path: Path) -> None:
    import ahead

    arguments = argparse.Namespace(device="cpu", records=tmp_path, ends=math.inf)
    actual = ahead._in_a_process("contract", "no such question", arguments)
    assert actual == {"failed": "ended with 1: KeyError: 'no such question'"}


def loses() -> dict[str, Any]:
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nand more")


def test_a_lost_gpu_ends_the_call_and_its_question_is_retried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import runs

    monkeypatch.setattr(runs, "lost", lambda setting: True)
    questions = {"one": loses, "two": lambda: {"seconds": 1.0}}
    arguments = argparse.Namespace(
        device="cpu", repeats=2, records=tmp_path, again=False, ends=math.inf
    )
    for _ in range(2):
        with pytest.raises(SystemExit, match="takes nothing more from this process: call again"):
            runs.answer("step", lambda setting: questions, arguments)
    assert runs.answer("step", lambda setting: questions, arguments) == 0
    actual = [json.loads(line) for line in (tmp_path / "step.jsonl").read_text().splitlines()]
    assert [line["question"] for line in actual] == ["one", "one", "two"]
    assert actual[0]["answer"]["lost"] and "illegal memory access" in actual[0]["answer"]["failed"]


def test_a_variant_that_loses_the_gpu_is_named_and_others_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import attention
    import runs

    setting = runs.Setting("cpu", 2)
    reason = attention.unavailable_reason("flex", loses, setting)
    assert reason == "CUDA error: an illegal memory access was encountered"
    assert attention.unavailable_reason("fused", lambda: None, setting) is None
    for module in (attention, runs):
        monkeypatch.setattr(module, "lost", lambda setting: True)
    with pytest.raises(RuntimeError, match=r"^split: .*illegal memory access"):
        attention.unavailable_reason("split", loses, setting)
    with pytest.raises(RuntimeError, match=r"^split: .*illegal memory access"):
        runs.timed({"fused": lambda: None, "split": loses}, setting)


def test_what_is_timed_by_itself_is_without_who_begins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pretended card, which does what is begun one after the other; to begin takes 1 ms."""
    import runs

    host, card = [0.0], [0.0]

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = card[0] = max(card[0], host[0])

        def elapsed_time(self, other: "Event") -> float:
            return 1e3 * (other.at - self.at)

    def begin(seconds: float) -> None:
        host[0] += 0.001
        card[0] = max(card[0], host[0]) + seconds

    def wait() -> None:
        host[0] = card[0] = max(host[0], card[0])

    def full() -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(runs, "lost", lambda setting: False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: begin(cycles / 2e9))
    steps = {"fast": partial(begin, 0.0001), "slow": partial(begin, 0.5), "full": full}
    actual = runs.by_itself(steps, runs.Setting("cuda", 3))
    assert actual == {"fast": pytest.approx([0.0001] * 3), "slow": pytest.approx([0.5] * 3)}
    monkeypatch.setattr(runs, "hold", lambda: None)
    actual = runs.by_itself(steps, runs.Setting("cuda", 3))
    assert actual["fast"] == pytest.approx([0.0011] * 3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128", "attention"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, __nv_bfloat16>", "attention"),
        ("pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", "attention"),
        ("row_statistics", "attention"),
        ("keys", "attention"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "products"),
        ("triton_tem_fused_mm_3", "products"),
        ("triton_poi_fused_addmm_cat_2", "compiled"),
        ("triton_red_fused__scaled_dot_product_flash_attention_1", "compiled"),
        ("at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimizer"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("elementwise_kernel_with_index", "other"),
    ],
)
def test_kernels_are_recognized_by_name(name: str, kind: str) -> None:
    import parts

    assert parts.kind_of(name) == kind


def test_an_answer_after_a_truncated_line_is_read(tmp_path: Path) -> None:
    import runs

    (tmp_path / "x.jsonl").write_text('{"question": "c", "dev')
    for number in range(2):
        runs.record(tmp_path, {"script": "x", "answer": number})
    assert [line["answer"] for line in runs.lines(tmp_path / "x.jsonl")] == [0, 1]


def test_a_missing_script_raises_a_one_line_error(tmp_path: Path) -> None:
    ended = call("tables", "--device", "cpu", "--records", str(tmp_path))
    assert ended.returncode == 2
    assert "no script tables: there are tune, contract, variants" in ended.stderr


def test_remaining_questions_are_reported(tmp_path: Path) -> None:
    ended = call("--device", "cpu", "--minutes", "0", "--records", str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().endswith("questions are left: call again")
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_the_error_is_one_line(tmp_path: Path) -> None:
    ended = call("--records", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith("torch sees no CUDA device; --device cpu")
    assert ended.stderr.count("\n") == 1


def test_answers_of_other_versions_and_half_lines_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import runs

    monkeypatch.setattr(runs, "surroundings", lambda script, setting: ORIGIN)
    (tmp_path / "x.jsonl").write_text(
        json.dumps({**ORIGIN, "question": "a"})
        + "\n"
        + json.dumps({**ORIGIN, "versions": {"torch": "2"}, "question": "b"})
        + '\n{"question": "c", "dev'
    )
    with (tmp_path / "x.jsonl").open("a") as file:
        failed = {"eager": {"within": True}, "fused": {"failed": "no kernel", "within": False}}
        file.write("\n" + json.dumps({**ORIGIN, "question": "d", "answer": failed}) + "\n")
    asks: dict[str, Any] = dict.fromkeys("abcd", dict)
    arguments = argparse.Namespace(device="cpu", repeats=2, records=tmp_path, again=False)
    assert list(runs.unanswered("x", asks, arguments)) == ["b", "c", "d"]
    with (tmp_path / "x.jsonl").open("a") as file:  # a second time
        file.write(json.dumps({**ORIGIN, "question": "d", "answer": failed}) + "\n")
    assert list(runs.unanswered("x", asks, arguments)) == ["b", "c"]
    assert list(runs.unanswered("none", asks, arguments)) == list("abcd")
    arguments.again = True
    assert list(runs.unanswered("x", asks, arguments)) == list("abcd")


def test_a_tile_with_wrong_results_is_not_timed() -> None:
    tune, kernel = import_module("tune"), tiles.Kernel("forward", 1, 16, 16)
    good, wrong, seldom, refused = (tiles.Tile(rows, 32, 4, 1) for rows in (16, 32, 64, 128))
    measured: list[tiles.Tile] = []
    right = torch.ones(4)

    def run() -> list[torch.Tensor]:
        tile = tiles.tile_for(kernel, right.device)
        if tile == refused:
            raise WrongCodeError("overwrites")
        measured.append(tile)
        off = tile == wrong or (tile == seldom and measured.count(seldom) == tune.ASKED)
        return [right * (math.nan if off else 1.001), right]

    candidates: list[tiles.Tile] = [wrong, good, seldom, refused]
    able, others = tune.sound(run, kernel, candidates, {}, {0: right})
    assert able == [good] and others == [bad.numbers for bad in (wrong, seldom, refused)]
    with pytest.raises(RuntimeError, match="no tile gives the numbers of PyTorch's attention"):
        tune.sound(run, kernel, [wrong], {}, {0: right})


def test_a_failed_part_does_not_stop_the_others() -> None:
    runs = import_module("runs")
    setting = runs.Setting("cpu", 2)
    actual = runs.failed_part("fused", ValueError("no\nkernel"), setting)
    assert actual == {"failed": "ValueError: no", "within": False}
    with pytest.raises(torch.OutOfMemoryError):
        runs.failed_part("fused", torch.OutOfMemoryError("full"), setting)


def test_wrong_answers_are_reported_until_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import runs

    monkeypatch.setattr(runs, "surroundings", lambda script, setting: ORIGIN)
    arguments = argparse.Namespace(device="cpu", repeats=2, records=tmp_path)

    def record_and_list_errors(within: bool, origin: dict[str, Any] = ORIGIN) -> list[str]:
        answer = {"sdpa": {"within": True}, "fused": {"error": 0.1, "within": within}}
        runs.record(tmp_path, {**origin, "script": "x", "question": "a b", "answer": answer})
        return list(runs.wrong(["x", "none"], arguments))

    assert record_and_list_errors(within=False) == [
        'WRONG: x a b, fused: {"error": 0.1, "within": false}'
    ]
    assert record_and_list_errors(within=True) == []
    assert record_and_list_errors(within=False, origin={**ORIGIN, "versions": {"torch": "2"}}) == []


def test_the_exit_code_counts_wrong_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = import_module("all")
    monkeypatch.setattr(every.runs, "answer", lambda *_: 0)
    monkeypatch.setattr(every.runs, "wrong", lambda *_: iter(errors))
    monkeypatch.setattr(sys, "argv", ["all.py", "--device", "cpu", "--records", str(tmp_path)])
    for adopted in (True, False):
        monkeypatch.setattr(every, "is_adopted", lambda _, adopted=adopted: adopted)
        for errors in ([], ["WRONG: contract a, fused: no"]):
            with pytest.raises(SystemExit) as ended:
                every.main()
            assert ended.value.code == len(errors)
            last = "all questions are answered" if adopted else "tune is answered: call with"
            assert capsys.readouterr().out.startswith("\n".join([*errors, last]))


def test_tiles_beyond_the_shared_memory_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    tune, runs = import_module("tune"), import_module("runs")
    kernel = tiles.Kernel("queries", 2, 128, 256)
    small = argparse.Namespace(shared_memory_per_block_optin=99 * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: small)
    actual = tune.tiles(runs.Setting("cuda", 2), kernel)
    fitting = [sizes for *sizes, shared in tiles.shipped("80")[str(kernel)] if shared <= 99 * 1024]
    assert [sizes.numbers for sizes in actual] == fitting
    assert 0 < len(fitting) < len(tiles.shipped("80")[str(kernel)])
