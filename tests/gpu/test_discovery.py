#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A GPU is found, named and checked; a configuration that names none that there is says so, and the rest goes on."""
import gpu
import harness


def gpu_row(agent, name="gpu0"):
    for row in agent.ctl_json("device", "list")["devices"]:
        if row["name"] == name:
            return row
    raise harness.Failure(f"device list has no {name}")


def test_device_list_and_show_name_the_gpu(t):
    with gpu.world() as agent:
        gpu.guest(agent)
        row = harness.wait_until(lambda: gpu_row(agent) if gpu_row(agent)["model"] else None, "the device has a model")
        t.note(f"{row['model']}, {row['id']}, {row['mem_bytes'] >> 20} MiB, {row['units']} units, {row['lanes']} lanes")
        t.equal(row["state"], "enabled")
        t.equal(row["kind"], "cpu" if gpu.BACKEND == "cpu" else "cuda")
        t.true(row["mem_bytes"] > 0 and row["units"] > 0 and row["lanes"] > 0, f"empty figures: {row}")
        if gpu.REAL:
            told = gpu.machine.find_gpus()[1]
            t.contains([g["uuid"] for g in told] + [g["uuid"].removeprefix("GPU-") for g in told], row["id"],
                       "the id is the UUID that the driver tells")
            t.contains([g["name"] for g in told], row["model"], "the model's name")
        t.equal(agent.ctl_json("device", "show", "gpu0")["device"]["id"], row["id"])


def test_doctor_finds_nothing_to_mend_on_the_device(t):
    with gpu.world() as agent:
        gpu.guest(agent)
        checks = agent.ctl_json("doctor")["checks"]
        mine = [check for check in checks if "gpu0" in check["name"]]
        t.true(mine, f"doctor says nothing of gpu0: {[check['name'] for check in checks]}")
        t.equal([check for check in mine if check["state"] != "ok"], [])
        t.equal([check["text"] for check in checks if check["state"] == "fail"], [])


def test_session_sees_the_kind_and_one_device(t):
    with gpu.world() as agent:
        made = gpu.guest(agent)
        seen = made.ask(f"props {gpu.KIND}").split()
        t.equal(seen[:2], ["devices", "1"])
        t.equal(int(seen[3]), 1 << gpu.KIND, "kinds")


def test_metrics_have_the_device(t):
    with gpu.world() as agent:
        made = gpu.guest(agent)
        made.ask("run q t spin 5 2000000")
        made.ask("wait t 30000")
        told = [row for row in agent.ctl_json("stats")["metrics"] if "gpu0" in row["labels"]]
        names = {row["name"]: row["value"] for row in told}
        t.equal(names.get("gantry_device_up"), 1)
        t.true(names.get("gantry_device_memory_bytes", 0) > 0, f"memory of the device: {names}")


def test_driver_that_is_not_there_fails_its_device_and_no_other(t):
    """On every machine: one binary serves hosts with and without a driver."""
    gpu.needs_backend("cuda", driver="/nonexistent")
    devices = {"cpu0": {}, "gpu0": {"backend": "cuda", "driver": "/nonexistent/libcuda.so.1"}}
    with harness.Agent(devices=devices) as agent:
        made = gpu.guest(agent)
        made.ask("run q t spin 3 1000")
        made.ask("wait t 20000")
        row = harness.wait_until(lambda: gpu_row(agent) if gpu_row(agent)["state"] == "failed" else None,
                                 "the device without a driver is shown as failed")
        if "no backend" in row["reason"]:
            t.skip(f"this build has no backend cuda: {row['reason']}")
        t.contains(row["reason"], "libcuda")
        t.equal(gpu_row(agent, "cpu0")["state"], "enabled")


def test_gpu_that_is_not_there_is_told_by_number(t):
    if gpu.BACKEND == "cpu":
        t.skip("cpu devices are as many as configured")
    with gpu.world(device={"gpu": 99}, agent={"warm_workers": 1}) as agent:
        harness.wait_until(lambda: gpu_row(agent)["state"] == "failed", "the device is shown as failed")
        t.contains(gpu_row(agent)["reason"], "99")


if __name__ == "__main__":
    harness.main(globals(), limit_s=gpu.LIMIT_S)
