"""A Node whose machine is a container: orders, answers and reports as the API server has them, and the kubelet's boot id."""
import json

from environment import Failure

ADDRESS = "10.0.1.11"


class Node:
    def __init__(self, environment, program, container, name):
        self.environment, self.program, self.container, self.name = environment, program, container, name
        path = environment.folder + "/bmcs.yaml"
        with open(path, "w") as file:
            file.write("others: {driver: agent, settings: {deadline-seconds: 60}}\n")
        engine = {"lease_ttl_seconds": 5, "state_directory": environment.folder + "/state"}
        self.config = environment.configure("agents.yaml", power={"bmcs": path}, engine=engine)
        machines = [environment.machine("cp1", "10.0.0.11", True), environment.machine(name, ADDRESS)]
        environment.create_nodes(machines)
        power = [str(program), "--config", self.config, "power"]
        environment.set_up(program, machines, {"reboot_command": [*power, "cycle"], "boot_check_command": [*power, "booted"],
                                               "command_timeout_seconds": 120})

    def annotation(self, name):
        annotations = self.environment.api("GET", f"/api/v1/nodes/{self.name}")["metadata"].get("annotations", {})
        return annotations.get(f"cketerm.io/{name}")

    def annotate(self, name, value):
        patch = {"metadata": {"annotations": {f"cketerm.io/{name}": value}}}
        self.environment.api("PATCH", f"/api/v1/nodes/{self.name}", patch, "application/merge-patch+json")

    def answer(self):
        return json.loads(self.annotation("reboot-answer") or "null")

    def report_boot(self):
        """Does the kubelet's part after a boot."""
        patch = {"status": {"nodeInfo": {"bootID": self.container.boot_id}}}
        self.environment.api("PATCH", f"/api/v1/nodes/{self.name}/status", patch, "application/merge-patch+json")

    def wait_for_report(self):
        boot_id = self.container.boot_id
        self.environment.wait("the agent reports this boot", lambda: boot_id in (self.annotation("agent") or ""))

    def order(self):
        return json.loads(self.annotation("reboot-order") or "null")

    def power(self, *arguments):
        return self.environment.run_program(self.program, "power", *arguments, config=self.config)

    def refused_again(self):
        """Removes the answer, as if it had been lost, so that the order is open again. Returns the new answer."""
        self.annotate("reboot-answer", None)
        try:
            return self.environment.wait("another answer", self.answer, 30)
        except Failure:
            return {}
