# SPDX-License-Identifier: Apache-2.0
"""The contract of doors over a socket of this machine (unix or stream): the TAP of door-contract, with a gantryd behind it."""
import os
import shutil
import sys
import tempfile

import harness


def main():
    harness.adopt_orphans()
    folder = tempfile.mkdtemp(prefix="gc-")
    path = os.path.join(folder, "v")
    env = {"GANTRY_DOOR": "stream:" + path} if sys.argv[1:] == ["stream"] else {}
    limits = {"mem": "256M", "virtual": "512M", "heap": "32M", "vsock_path": path}
    try:
        with harness.Agent(tenants={"red": limits}) as agent:
            ended = agent.run_guest("red", [harness.program("door-contract")], env=env, timeout=180)
    except harness.Skip as reason:
        print(f"1..0 # {reason}")
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(ended.out, end="")
    for line in ended.err.splitlines():
        print("# " + line)
    return ended.code


if __name__ == "__main__":
    sys.exit(main())
