import { createInterface } from "node:readline";
import { PassThrough } from "node:stream";
import { choiceFlag, durationFlag, integerFlag, optionalFlag, stringFlag, switchFlag } from "#base/config";
import { describeError, ExpectedError } from "#base/errors";
import { createLogger } from "#base/log";
import { type HostEvent, runHost, type SwitchRequest } from "#lab/host";
import { cniExecutable } from "../../shared/lab-front/index.ts";
import { defineProgram, EXIT, launcherCommand } from "../../shared/program/index.ts";

const flags = {
  name: stringFlag("name", "lab", "name of the lab", "NAME"),
  nodes: integerFlag("nodes", 3, "how many nodes", { min: 1, max: 200 }),
  families: choiceFlag("families", ["dual", "ipv4", "ipv6"], "dual", "address families"),
  tunnel: switchFlag("tunnel", false, "the control plane is behind a firewall, and is reached only through the tunnel"),
  uplinks: switchFlag(
    "uplinks",
    false,
    "the first node has two uplinks to a simulated internet, and runs uplink-proxy",
  ),
  services: switchFlag("services", false, "run service-proxy on every node"),
  egress: switchFlag("egress", false, "join a network outside, and run coil-egress-controller and service-proxy"),
  chained: switchFlag("chained", false, "Debian's ptp makes the pods' interfaces, with coil chained behind it"),
  image: optionalFlag("image", "run the programs of this image instead of the build's", "FILE"),
  upgrade: optionalFlag("upgrade", "begin with the programs of this build of another release", "PATH"),
  startTimeout: durationFlag("start-timeout", "2m", "how long the nodes may take until they are ready"),
  vpc: switchFlag("vpc", false, "run Neutron, nic-controller, and nic-agent on the first two nodes"),
  vpcDriver: choiceFlag("vpc-driver", ["openvswitch", "ovn"], "openvswitch", "who programs the switches of --vpc"),
  labKubeconfig: optionalFlag(
    "lab-kubeconfig",
    "use the API server of this kubeconfig instead of the embedded one",
    "FILE",
  ),
};

/** Keeps a lab running. `isthmus lab` starts this program and communicates with it over standard input and output. */
export const labHost = defineProgram({
  name: "lab-host",
  summary: "Keeps a lab running. `isthmus lab` starts this program.",
  flags,
  run: async ({ values, signal }) => {
    const controller = new AbortController();
    const stop = (): void => controller.abort(new DOMException("the lab ends", "AbortError"));
    signal.addEventListener("abort", stop, { once: true });
    const tell = (event: HostEvent | { readonly event: "kept" }): void =>
      void process.stdout.write(`${JSON.stringify(event)}\n`);
    // After the front end has ended, writes to it fail. The end of standard input shows that the front end has ended.
    process.stdout.on("error", () => undefined);
    let kept = false;
    const input = createInterface({ input: process.stdin });
    // A front end asks for one at a time.
    const switches = new PassThrough({ objectMode: true });
    input.on("line", (line) => {
      if (line.startsWith("{")) switches.write(JSON.parse(line) as SwitchRequest);
      if (line !== "keep") return;
      kept = true;
      tell({ event: "kept" });
    });
    input.on("close", () => {
      if (!kept) stop();
    });
    try {
      await runHost(
        { log: createLogger({ name: "lab" }), tell, switches },
        {
          lab: values.name,
          nodes: values.nodes,
          families: values.families,
          kubeconfig: values.labKubeconfig,
          tunnel: values.tunnel,
          uplinks: values.uplinks,
          services: values.services,
          // A lab that is upgraded has a connection through an Egress.
          egress: values.egress || values.upgrade !== undefined,
          chained: values.chained,
          image: values.image,
          vpc: values.vpc,
          vpcDriver: values.vpcDriver,
          upgrade: values.upgrade,
          isthmus: launcherCommand(),
          cniExecutable: cniExecutable(),
          coildFlags: [],
          startMs: values.startTimeout,
        },
        { signal: controller.signal },
      );
      return EXIT.ok;
    } catch (error) {
      if (controller.signal.aborted) return EXIT.ok;
      if (error instanceof ExpectedError) tell({ event: "failed", message: describeError(error) });
      throw error;
    } finally {
      input.close();
      process.stdin.destroy();
    }
  },
});
