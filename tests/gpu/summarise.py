#!/usr/bin/env python3
"""Writes docs/gpu-results.md from the JSON of runs on a GPU: summarise.py results-lean.json [results-trt10.json…] > PAGE."""

import json
import sys

MIB = 1 << 20


def size(value):
    return "–" if value is None else f"{value / MIB:.2f} MiB"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def figures(document, name):
    return document["sections"].get(name, {}).get("figures") or {}


def sections(document):
    rows = []
    for name, entry in document["sections"].items():
        text = entry.get("text", "")
        rows.append((name, entry["outcome"], f"{entry['seconds']:.1f} s", " ".join(text.split())[:300].replace("|", "\\|")))
    return table(("section", "outcome", "time", "what was said"), rows)


def scenario(document):
    found = figures(document, "scenario")
    if not found:
        return ""
    text = f"`tidemark audit`: **{found.get('headline')}** (exit status {found.get('exit_code')}).\n\n"
    rows = []
    for quantity in ("gpu_process", "gpu_device"):
        if quantity in found:
            each = found[quantity]
            growth = each["growth_per_failed_cycle"]
            rows.append((quantity, size(each["mark"]), size(each["final"]), size(each["above_mark"]),
                         "–" if growth is None else f"{growth:.0f} B"))
    if rows:
        text += table(("figure of NVML", "mark", "at the end", "above the mark", "growth per failed load"), rows) + "\n"
    if found.get("failed_text"):
        text += "A failed load answers:\n\n```\n" + found["failed_text"] + "\n```\n"
    control = figures(document, "control")
    if control:
        text += f"\nThe control, a server that leaks 66 MiB with each failed load: **{control.get('headline')}**.\n"
    return text


def cycles(document):
    rows = []
    for name, each in figures(document, "cycles").items():
        if isinstance(each, dict) and "slope_bytes_per_cycle" in each:
            rows.append((name, each["cycles"], size(each["mark"]), size(each["last"]), f"{each['slope_bytes_per_cycle']:g} B",
                         f"{each['median_seconds'] * 1000:.1f} ms", f"{each['anonymous_growth'] / 1024:.0f} KiB"))
    text = table(("loads over HTTP", "cycles", "mark (NVML)", "last (NVML)", "slope per cycle", "median of a cycle",
                  "host memory grown"), rows) if rows else ""
    core = figures(document, "core")
    rows = []
    for name, each in core.items():
        more = ", ".join(f"{key} {value}" for key, value in each.items() if key not in ("result", "time"))
        rows.append((name.replace("Plans/Gpu.", ""), each["result"], each["time"], more))
    if rows:
        text += "\nInside one process (`tests/gpu/gpu_test.cc`): every acquisition fails in turn; NVML after a pressure flush.\n\n"
        text += table(("test", "result", "time", "figures"), rows)
    return text


def speed(document):
    found = figures(document, "speed")
    if not found:
        return ""
    bare = {name[5:]: each for name, each in found.items() if name.startswith("bare ")}
    text = ""
    rows = []
    for plan, each in bare.items():
        for loop in each["loops"]:
            rows.append((plan, loop["batch"], f"{loop['us']:.1f} µs", f"{loop['items_per_second']:.0f}", f"{loop['graph_us']:.1f} µs"))
    if rows:
        text += table(("bare loop", "batch", "copy in, enqueue, copy out, wait", "items/s", "as a CUDA graph"), rows) + "\n"
        text += table(("plan", "H2D", "D2H", "deserialize", "context", "delete"), [
            (plan, f"{each['h2d_gb_per_s']:.1f} GB/s", f"{each['d2h_gb_per_s']:.1f} GB/s", f"{each['load_ms']['deserialize']:.2f} ms",
             f"{each['load_ms']['context']:.2f} ms", f"{each['load_ms']['delete']:.2f} ms") for plan, each in bare.items()]) + "\n"
    rows = []
    for name, each in found.items():
        if "p50_us" not in (each if isinstance(each, dict) else {}):
            continue
        inside = each.get("mean_us_inside", {})
        rows.append((name, f"{each['per_second']:.0f}", f"{each['p50_us']:.0f} µs", f"{each['p99_us']:.0f} µs", each["errors"],
                     each.get("mean_batch", ""), " / ".join(f"{inside[key]:.0f}" for key in ("queue", "compute_input", "compute_infer",
                                                                                          "compute_output") if key in inside),
                     each.get("cpu_us_per_request", ""), each.get("client_busy", "")))
    text += table(("server over HTTP: model x connections", "requests/s", "p50", "p99", "errors", "batch",
                   "µs in queue / input / infer / output", "CPU µs of the server for each", "client busy"), rows)
    text += ("\n`host` is the identity backend, without a GPU: what the server itself can do on this machine, which the client shares "
             "(busy: of its threads' time).\n")
    if "loads" in found:
        names = ("load", "least_load", "unload", "both", "least_both", "bare_load", "bare_least_load", "bare_delete")
        text += "\nLoads and unloads over HTTP, and the bare steps (load = deserialize + context), in turns:\n\n" + table(
            ("plan", "load", "the least", "unload", "both", "the least", "bare load", "the least", "bare delete"),
            [(model, *(f"{each[name]} ms" for name in names)) for model, each in found["loads"].items()])
    steps = found.get("load_steps_us") or {}
    if steps:
        names = list(dict.fromkeys(name for each in steps.values() for name in each))
        text += "\n" + table(("step of a load or unload (µs)", *steps), [(name, *(each.get(name, "–") for each in steps.values())) for name in names])
    costs = {plan: each["us"] for plan, each in bare.items() if "us" in each}
    if costs:
        names = list(dict.fromkeys(name for each in costs.values() for name in each))
        text += "\n" + table(("bare cost of, with its undoing (µs)", *costs), [(name, *(each.get(name, "–") for each in costs.values())) for name in names])
    if found.get("driver us"):
        text += "\nNVML's answers (µs): " + ", ".join(f"{name} {value}" for name, value in found["driver us"].items()) + ".\n"
    ratio = figures(document, "ratios")
    if ratio:
        text += "\n" + table(("measure", "value", "wanted"), [(name, each["value"], each["wanted"]) for name, each in ratio.items()])
    return text


def throughput(document):
    found = figures(document, "throughput")
    if not found:
        return ""
    rows = []
    for family, each in found.items():
        for loop in each["bare"]:
            rows.append((family, "bare loop", loop["batch"], f"{loop['items_per_second']:.0f}", "", "", "", "", ""))
        for connections, one in each["served"].items():
            rows.append((family, f"served, {connections} connections", one["mean_batch"], f"{one['per_second']:.0f}", f"{one['over_bare']:.3f}",
                         f"{one['over_bare_of_its_batch']:.3f} ({one['its_batch']})",
                         f"{one['p50_us']:.0f} µs", f"{one['p99_us']:.0f} µs", one["client_busy"]))
    return ("The bare loop copies in, runs, copies out and waits, one batch after the other; the server has dynamic batching and two instances, "
            "each request one item over HTTP.\n\n" +
            table(("model", "by", "batch", "items/s", "over the best bare loop", "over that of about its batch", "p50", "p99", "client busy"), rows))


def page(documents):
    first = documents[0]
    facts = figures(first, "environment")
    text = ("# Results on a GPU\n\nMeasured by `tests/gpu/run.sh` (see [tests/gpu](../tests/gpu/README.md)); this page is made from its JSON by "
            "`tests/gpu/summarise.py`. Single runs on one machine: magnitudes.\n\n")
    text += table(("what", "value"), [(key, value) for key, value in facts.items() if key != "fake"]) + "\n"
    if facts.get("fake"):
        text += "**A rehearsal with fake libraries: no GPU was there.**\n\n"
    for document in documents:
        name = "TensorRT 11.2.1.2, lean runtime" if document["part"] == "lean" else "TensorRT 10.6.0, full runtime"
        gpus = figures(document, "environment").get("gpus", 1)
        only = "" if "scenario" in document["sections"] else " --only " + ",".join(document["sections"])
        text += (f"## {name}{f', {gpus} GPUs' if gpus > 1 else ''}\n\nCommand: `tests/gpu/run.sh {document['part']}{only}`.\n\n" +
                 sections(document) + "\n")
        exact = document.get("answers", {})
        if exact:
            good = [plan for plan, said in exact.items() if said.endswith("exact")]
            text += f"Answers over HTTP, bit exact, for {len(good)} of {len(exact)} plans: {', '.join(good)}.\n\n"
            bad = {plan: said for plan, said in exact.items() if not said.endswith("exact")}
            if bad:
                text += table(("plan", "instead"), [(plan, said.replace("|", "\\|")[:400]) for plan, said in bad.items()]) + "\n"
        models = figures(document, "real_models")
        if models:
            text += "Real models beside ONNX Runtime on the CPU:\n\n" + table(
                ("model and output", "largest difference", "largest value", "time of one request"),
                [(name, f"{each['largest_difference']:.2e}", f"{each['largest_value']:.3g}", f"{each['seconds'] * 1000:.1f} ms")
                 for name, each in models.items()]) + "\n"
        for title, maker in (("The reported leak", scenario), ("Cycles", cycles), ("Speed", speed), ("Throughput", throughput)):
            body = maker(document)
            if body:
                text += f"### {title}\n\n{body}\n"
        for title, name in (("Reload under traffic", "traffic"), ("Budget", "memory_limit"), ("A full device", "out_of_memory"),
                            ("Two instances", "instances"), ("All GPUs", "gpus"), ("CUDA shared memory", "shared_memory"),
                            ("CUDA graphs", "graphs"), ("A type without a name", "fp8")):
            found = figures(document, name)
            if found:
                text += f"### {title}\n\n```json\n{json.dumps(found, indent=1)}\n```\n\n"
    return text


if __name__ == "__main__":
    print(page([json.load(open(path)) for path in sys.argv[1:]]), end="")
