/**
 * A node that runs the Pods bound to it as their manifests say: each container in a root of its own, with the programs where the image has them, and with
 * the command, arguments, environment, volumes, user, capabilities and account of its Pod; its probes are asked as a kubelet asks them. Interfaces come from
 * the network configuration and executables that an init container installed. Every image is that of this suite. Linux namespaces for pids and the image's
 * packages of Debian are left out: those of this machine are used.
 *
 * Owns: processes, network namespaces and folders of its Pods, and their status. Does not know: the programs.
 *
 * ```ts
 * await using node = new ManifestNode(api, { name: "n1", netns, addresses, folder, image, apiServer, ca });
 * await until("all are ready", () => node.unready().length === 0, { seen: () => node.said() });
 * ```
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describeError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { isKubeError, type KubeClient, type KubeObject, type Pod, type ResourceType, resources } from "#kube/client";
import { connectInside, request } from "#lab/inside";
import { type Running, start } from "#test/lab";
import { layPrograms, PATH } from "../../tools/image/root.ts";

const CNI_PATH = ["/opt/cni/bin", "/usr/lib/cni"];
const POLL_MS = 50;
const TRY_AGAIN_MS = 200;
const PROBE_TIMEOUT_MS = 1000;
/** The capabilities that a runtime leaves to a container of root that is not privileged. */
const DEFAULT_CAPABILITIES = [
  "chown",
  "dac_override",
  "fsetid",
  "fowner",
  "mknod",
  "net_raw",
  "setgid",
  "setuid",
  "setfcap",
  "setpcap",
  "net_bind_service",
  "sys_chroot",
  "kill",
  "audit_write",
];

/** Folders of the host that are this machine's. */
const OF_MACHINE = ["/lib/modules", "/proc/sys"];

/** The visible files of the machine's /etc: names, and files that its programs need. Volumes are mounted below /etc too. */
const ETC =
  "passwd group hosts nsswitch.conf protocols services ld.so.cache ld.so.conf ld.so.conf.d alternatives".split(" ");

/** The fields of a container that are carried out. A container with others than these and {@link UNUSED} is refused. */
interface Container {
  readonly name: string;
  readonly image?: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly EnvVar[];
  readonly ports?: readonly { readonly name?: string; readonly containerPort: number }[];
  readonly securityContext?: SecurityContext;
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly startupProbe?: Probe;
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
}
const CARRIED_OUT = [
  "name",
  "image",
  "command",
  "args",
  "env",
  "ports",
  "securityContext",
  "volumeMounts",
  "startupProbe",
  "livenessProbe",
  "readinessProbe",
];
/** Fields without a meaning on this node. */
const UNUSED = ["resources", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"];

/** Fields of a Pod that are carried out here, or by the scheduler of the bed, and those without a meaning on this node. */
const POD_FIELDS = [
  ..."nodeName hostNetwork serviceAccountName automountServiceAccountToken securityContext containers initContainers volumes".split(
    " ",
  ),
  ..."nodeSelector tolerations affinity priorityClassName priority preemptionPolicy schedulerName".split(" "),
  ..."hostPID dnsPolicy restartPolicy terminationGracePeriodSeconds imagePullSecrets enableServiceLinks serviceAccount".split(
    " ",
  ),
];

interface Probe {
  readonly httpGet?: { readonly path?: string; readonly port: number | string; readonly host?: string };
}
interface SecurityContext {
  readonly privileged?: boolean;
  readonly runAsUser?: number;
  readonly runAsGroup?: number;
  readonly allowPrivilegeEscalation?: boolean;
  readonly readOnlyRootFilesystem?: boolean;
  readonly capabilities?: { readonly add?: readonly string[]; readonly drop?: readonly string[] };
}
interface EnvVar {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: {
    readonly fieldRef?: { readonly fieldPath: string };
    readonly configMapKeyRef?: { readonly name: string; readonly key: string };
  };
}
/** A projected volume's source; others are refused. */
interface Projection {
  readonly serviceAccountToken?: { readonly path: string; readonly audience?: string };
}
interface PodSpec {
  readonly nodeName?: string;
  readonly hostNetwork?: boolean;
  readonly serviceAccountName?: string;
  readonly automountServiceAccountToken?: boolean;
  readonly securityContext?: SecurityContext;
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly hostPath?: { readonly path: string; readonly type?: string };
    readonly emptyDir?: object;
    readonly secret?: { readonly secretName: string };
    readonly configMap?: { readonly name: string };
    readonly projected?: { readonly sources: readonly Projection[] };
  }[];
}

/** Settings of a node. */
export interface ManifestNodeSettings {
  /** Its name in the API. */
  readonly name: string;
  /** Its network namespace, by name, and the addresses of it that probes of its own network reach. */
  readonly netns: string;
  readonly addresses: readonly string[];
  /** A folder for its files; `host` in it is the root of host paths, except those of {@link OF_MACHINE}. */
  readonly folder: string;
  /** The folder of {@link layImage}. */
  readonly image: string;
  /** The API server as pods know it, the authority of its certificate, and the token of an account, for an audience where it is not the API server's. */
  readonly apiServer: { readonly host: string; readonly port: number; readonly ca: string };
  readonly tokenOf: (namespace: string, account: string, audience?: string) => string;
}

/** Puts the programs of the build where the image has them, into an empty folder. Returns the folder. */
export function layImage(folder: string): string {
  layPrograms(folder, join(import.meta.dirname, "../../dist"));
  // Node is mounted here.
  writeFileSync(join(folder, "usr/local/bin/node"), "");
  return folder;
}

/** A Pod that runs here. */
export interface PlacedPod {
  readonly ref: { readonly namespace: string; readonly name: string };
  /** Its network namespace by name. */
  readonly netns: string;
  readonly ips: readonly string[];
  readonly running: readonly Running[];
}

interface Place {
  readonly pod: Pod;
  readonly spec: PodSpec;
  hostPorts: readonly number[];
  netns: string;
  ips: readonly string[];
  hasStarted: boolean;
  isReady: boolean;
  isEnded: boolean;
  fault: string;
  readonly running: Running[];
  /** The command line that runs a command in its last container. */
  inside: ((command: readonly string[]) => readonly string[]) | undefined;
}

/** Disposing ends the processes and removes the network namespaces. */
export class ManifestNode implements AsyncDisposable {
  readonly #api: KubeClient;
  readonly #settings: ManifestNodeSettings;
  readonly #places = new Map<string, Place>();
  readonly #made: string[] = [];
  readonly #stop = new AbortController();
  readonly #loop: Promise<void>;
  readonly #work: Promise<void>[] = [];

  constructor(api: KubeClient, settings: ManifestNodeSettings) {
    this.#api = api;
    this.#settings = settings;
    for (const path of ["run", "opt/cni/bin", "etc/cni/net.d"])
      mkdirSync(join(settings.folder, "host", path), { recursive: true });
    this.#loop = this.#watch();
  }

  /** A Pod by the beginning of its name, once all its containers run. */
  find(prefix: string): PlacedPod | undefined {
    const place = Array.from(this.#places.values()).find(({ pod }) => pod.metadata.name.startsWith(prefix));
    if (place === undefined || place.ips.length === 0) return undefined;
    const { namespace = "default", name } = place.pod.metadata;
    return { ref: { namespace, name }, netns: place.netns, ips: place.ips, running: place.running };
  }

  /** Names of Pods that are placed and not ready. */
  unready(): string[] {
    return Array.from(this.#places.values()).flatMap(({ isReady, pod }) => (isReady ? [] : [pod.metadata.name]));
  }

  /** Names of Pods that are ready. */
  ready(): string[] {
    return Array.from(this.#places.values()).flatMap(({ isReady, pod }) => (isReady ? [pod.metadata.name] : []));
  }

  /** The logs of all containers, and what keeps Pods from running. */
  said(): string {
    return Array.from(this.#places.values())
      .map(
        ({ pod, running, fault }) =>
          `${fault === "" ? "" : `${pod.metadata.name}: ${fault}\n`}${running.map((one) => one.said()).join("")}`,
      )
      .join("");
  }

  /** Runs a command in the last container of a Pod by the beginning of its name, as `kubectl exec` does. */
  async exec(prefix: string, ...command: readonly string[]): Promise<Awaited<Running["ended"]>> {
    const place = Array.from(this.#places.values()).find(({ pod }) => pod.metadata.name.startsWith(prefix));
    const argv = place?.inside?.(command) ?? assert.fail(`no container of ${prefix} runs`);
    return await start(argv, { timeoutMs: 60_000 }).ended;
  }

  /** Ends the containers of Pods by the beginning of their names, as after their deletion. */
  async end(prefix: string): Promise<void> {
    for (const place of this.#places.values()) {
      if (!place.pod.metadata.name.startsWith(prefix)) continue;
      place.isEnded = true;
      place.isReady = false;
      place.hostPorts = [];
      for (const { child } of place.running) child.kill("SIGTERM");
      await Promise.all(place.running.map(({ ended }) => ended));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#loop;
    const running = Array.from(this.#places.values()).flatMap((place) => place.running);
    for (const one of running) one.child.kill("SIGKILL");
    await Promise.all([...running.map((one) => one.ended), ...this.#work]);
    for (const name of this.#made) openKernel().deleteNetNs(name);
  }

  async #watch(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const { items } = await this.#api.listAll(resources.pods);
      for (const pod of items) {
        const uid = pod.metadata.uid ?? "";
        if (pod.spec?.nodeName === this.#settings.name && !this.#places.has(uid)) this.#place(uid, pod);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** A Pod whose port of the host another has waits, as a scheduler lets it wait. */
  #place(uid: string, pod: Pod): void {
    const spec = pod.spec as unknown as PodSpec;
    const ports = spec.hostNetwork === true ? spec.containers.flatMap((one) => one.ports ?? []) : [];
    const hostPorts = ports.map(({ containerPort }) => containerPort);
    const taken = new Set(Array.from(this.#places.values()).flatMap((place) => place.hostPorts));
    if (hostPorts.some((port) => taken.has(port))) return;
    const place: Place = {
      pod,
      spec,
      hostPorts,
      netns: "",
      ips: [],
      hasStarted: false,
      isReady: false,
      isEnded: false,
      fault: "",
      running: [],
      inside: undefined,
    };
    this.#places.set(uid, place);
    this.#work.push(
      this.#run(place).catch((error: unknown) => {
        place.fault = describeError(error);
      }),
    );
  }

  async #run(place: Place): Promise<void> {
    const { spec, pod } = place;
    const unknown = Object.keys(spec).filter((key) => !POD_FIELDS.includes(key));
    assert.deepEqual(unknown, [], `pod ${pod.metadata.name}`);
    if (spec.hostNetwork === true) {
      place.netns = this.#settings.netns;
      place.ips = this.#settings.addresses;
    } else {
      place.netns = `${this.#settings.netns}-${pod.metadata.uid?.slice(0, 8)}`;
      openKernel().createNetNs(place.netns)[Symbol.dispose]();
      this.#made.push(place.netns);
      // As every runtime does.
      execFileSync("ip", ["-n", place.netns, "link", "set", "lo", "up"]);
      place.ips = await this.#attach(place);
    }
    await this.#tell(place, false);
    for (const container of spec.initContainers ?? []) {
      const one = await this.#start(place, container);
      const { code, stderr } = await one.ended;
      if (code !== 0) throw new Error(`init container ${container.name} ended with ${code}: ${stderr}`);
    }
    for (const container of spec.containers) {
      const one = await this.#start(place, container);
      void one.ended.then(({ code }) => {
        place.fault = `container ${container.name} ended with ${code}`;
      });
    }
    while (!this.#stop.signal.aborted && !place.isEnded) {
      const which = place.hasStarted ? "readinessProbe" : "startupProbe";
      const answers = await Promise.all(spec.containers.map((one) => this.#probe(place, one, which)));
      if (!place.hasStarted) {
        place.hasStarted = answers.every(Boolean);
        if (!place.hasStarted) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
        continue;
      }
      const isReady = answers.every(Boolean);
      if (isReady !== place.isReady) await this.#tell(place, isReady);
      place.isReady = isReady;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  /** Resolves with true if a probe of each Pod that runs here succeeds now. */
  async alive(): Promise<boolean> {
    const places = Array.from(this.#places.values());
    const answers = places.flatMap((place) =>
      place.spec.containers.map((one) => this.#probe(place, one, "livenessProbe")),
    );
    return (await Promise.all(answers)).every(Boolean);
  }

  async #probe(
    { pod, netns, ips }: Place,
    { name, ports, ...probes }: Container,
    which: "startupProbe" | "livenessProbe" | "readinessProbe",
  ): Promise<boolean> {
    const get = probes[which]?.httpGet;
    // Containers without a probe are well while they run.
    if (get === undefined) return true;
    const port = typeof get.port === "number" ? get.port : ports?.find((one) => one.name === get.port)?.containerPort;
    assert.ok(port !== undefined, `${pod.metadata.name}: container ${name} has no port ${get.port}`);
    const host = get.host === undefined ? (ips[0] ?? "") : get.host === "localhost" ? "127.0.0.1" : get.host;
    // A kubelet asks from the node's network.
    const from = { name: this.#settings.netns };
    assert.ok(netns !== "");
    try {
      const socket = await connectInside(
        from,
        { address: IpAddress.parse(host), port },
        { timeoutMs: PROBE_TIMEOUT_MS },
      );
      const { status } = await request(socket, { path: get.path ?? "/", host }, { timeoutMs: PROBE_TIMEOUT_MS });
      return status >= 200 && status < 400;
    } catch {
      return false;
    }
  }

  async #tell({ pod, ips }: Place, isReady: boolean): Promise<void> {
    const { namespace = "default", name } = pod.metadata;
    const now = isReady ? "True" : "False";
    const status = {
      phase: "Running",
      hostIP: this.#settings.addresses[0],
      podIP: ips[0],
      podIPs: ips.map((ip) => ({ ip })),
      conditions: [
        { type: "Ready", status: now },
        { type: "ContainersReady", status: now },
      ],
    };
    await this.#api.patch(
      resources.pods,
      { namespace, name },
      { type: "merge", body: { status } },
      { subresource: "status" },
    );
  }

  /** Calls the plugins of the installed configuration, until they give the pod addresses. */
  async #attach(place: Place): Promise<readonly string[]> {
    const { namespace = "default", name, uid = "" } = place.pod.metadata;
    const folder = join(this.#settings.folder, "host/etc/cni/net.d");
    while (!this.#stop.signal.aborted) {
      const file = readdirSync(folder).find((one) => one.endsWith(".conflist"));
      if (file === undefined) place.fault = "there is no network configuration yet";
      else {
        const {
          plugins,
          cniVersion,
          name: network,
        } = JSON.parse(readFileSync(join(folder, file), "utf8")) as {
          readonly cniVersion: string;
          readonly name: string;
          readonly plugins: readonly { readonly type: string }[];
        };
        let prevResult: { readonly ips?: readonly { readonly address: string }[] } | undefined;
        for (const plugin of plugins) {
          const env = {
            CNI_COMMAND: "ADD",
            CNI_CONTAINERID: uid,
            CNI_NETNS: `/run/netns/${place.netns}`,
            CNI_IFNAME: "eth0",
            CNI_PATH: CNI_PATH.join(":"),
            CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name};K8S_POD_UID=${uid}`,
          };
          const input = Buffer.from(JSON.stringify({ ...plugin, cniVersion, name: network, prevResult }));
          const search = `for d in ${CNI_PATH.join(" ")}; do [ -x $d/${plugin.type} ] && exec $d/${plugin.type}; done; exit 127`;
          const { code, stdout, stderr } = await start(
            this.#inRoot({ mounts: [this.#hostMount("/run"), this.#hostMount("/opt/cni/bin")], env, readOnly: false }, [
              "sh",
              "-c",
              search,
            ]),
            { input },
          ).ended;
          if (code !== 0) {
            place.fault = `${plugin.type}: ${stdout}${stderr}`;
            prevResult = undefined;
            break;
          }
          prevResult = JSON.parse(stdout) as typeof prevResult;
        }
        if (prevResult?.ips !== undefined) {
          place.fault = "";
          return prevResult.ips.map(({ address }) => address.split("/")[0] ?? "");
        }
      }
      await new Promise((resolve) => setTimeout(resolve, TRY_AGAIN_MS));
    }
    throw new Error(place.fault);
  }

  #hostMount(path: string): Mount {
    const source = OF_MACHINE.includes(path) ? path : join(this.#settings.folder, "host", path);
    return { source, target: path, readOnly: false };
  }

  /** Starts a container. As kubelet does, it waits for ConfigMaps and Secrets that are not there yet. */
  async #start(place: Place, container: Container): Promise<Running> {
    for (;;) {
      try {
        const running = await this.#startNow(place, container);
        place.fault = "";
        return running;
      } catch (error) {
        if (!isKubeError(error, "not-found") || this.#stop.signal.aborted) throw error;
        place.fault = describeError(error);
        await new Promise((resolve) => setTimeout(resolve, TRY_AGAIN_MS));
      }
    }
  }

  async #startNow(place: Place, container: Container): Promise<Running> {
    const { pod, spec } = place;
    const { namespace = "default", name, uid = "" } = pod.metadata;
    const unknown = Object.keys(container).filter((key) => ![...CARRIED_OUT, ...UNUSED].includes(key));
    assert.deepEqual(unknown, [], `container ${container.name}`);
    const mounts: Mount[] = [];
    for (const { name: volume, mountPath, readOnly = false } of container.volumeMounts ?? []) {
      const { source } = await this.#volume(place, volume);
      // A kernel without modules; the root's own folder is not made on this machine.
      if (source !== "/lib/modules" || existsSync(source)) mounts.push({ source, target: mountPath, readOnly });
    }
    const account = join(this.#settings.folder, "accounts", uid);
    this.#write(account, {
      token: this.#settings.tokenOf(namespace, spec.serviceAccountName ?? "default"),
      "ca.crt": this.#settings.apiServer.ca,
      namespace,
    });
    if (spec.automountServiceAccountToken !== false)
      mounts.push({ source: account, target: "/var/run/secrets/kubernetes.io/serviceaccount", readOnly: true });
    const env: Record<string, string> = {
      HOSTNAME: spec.hostNetwork === true ? this.#settings.name : name,
      KUBERNETES_SERVICE_HOST: this.#settings.apiServer.host,
      KUBERNETES_SERVICE_PORT: String(this.#settings.apiServer.port),
    };
    for (const one of container.env ?? []) env[one.name] = await this.#valueOf(place, one);
    const security = { ...spec.securityContext, ...container.securityContext };
    assert.ok(container.command !== undefined, `container ${container.name} has a command`);
    const own = { netns: place.netns, mounts, env, readOnly: security.readOnlyRootFilesystem === true, security };
    place.inside = (command) => this.#inRoot(own, command);
    const argv = place.inside([...container.command, ...(container.args ?? [])].map((word) => expanded(word, env)));
    const running = start(argv, { timeoutMs: 300_000 });
    place.running.push(running);
    return running;
  }

  async #valueOf({ pod, ips }: Place, { name, value, valueFrom }: EnvVar): Promise<string> {
    if (value !== undefined) return value;
    const { namespace = "default" } = pod.metadata;
    const ref = valueFrom?.configMapKeyRef;
    if (ref !== undefined)
      return (await this.#configMap(namespace, ref.name))[ref.key] ?? assert.fail(`${ref.name} has no ${ref.key}`);
    const fields: Readonly<Record<string, string | undefined>> = {
      "metadata.name": pod.metadata.name,
      "metadata.namespace": namespace,
      "spec.nodeName": this.#settings.name,
      "status.hostIP": this.#settings.addresses[0],
      "status.podIP": ips[0],
      "status.podIPs": ips.join(","),
    };
    return fields[valueFrom?.fieldRef?.fieldPath ?? ""] ?? assert.fail(`env ${name}: ${JSON.stringify(valueFrom)}`);
  }

  async #configMap(namespace: string, name: string): Promise<Readonly<Record<string, string>>> {
    const type = resources.configMaps as ResourceType<
      KubeObject & { readonly data?: Readonly<Record<string, string>> }
    >;
    return (await this.#api.get(type, { namespace, name })).data ?? {};
  }

  async #volume({ pod, spec }: Place, name: string): Promise<Pick<Mount, "source">> {
    const volume = spec.volumes?.find((one) => one.name === name) ?? assert.fail(`no volume ${name}`);
    const { namespace = "default", uid = "" } = pod.metadata;
    const folder = join(this.#settings.folder, "volumes", uid, name);
    if (volume.hostPath !== undefined) {
      const { path, type = "" } = volume.hostPath;
      const { source } = this.#hostMount(path);
      if (type === "DirectoryOrCreate" || type === "") {
        if (!existsSync(source)) mkdirSync(source, { recursive: true });
      } else if (type === "FileOrCreate") {
        if (!existsSync(source)) writeFileSync(source, "");
      } else
        assert.ok(type === "Directory" && statSync(source).isDirectory(), `volume ${name} is a folder of the host`);
      return { source };
    }
    mkdirSync(folder, { recursive: true });
    if (volume.secret !== undefined) {
      const secret = await this.#api.get(resources.secrets, { namespace, name: volume.secret.secretName });
      const data = Object.entries(secret.data ?? {}).map(([key, text]) => [
        key,
        Buffer.from(text, "base64").toString(),
      ]);
      this.#write(folder, Object.fromEntries(data) as Record<string, string>);
    } else if (volume.configMap !== undefined)
      this.#write(folder, await this.#configMap(namespace, volume.configMap.name));
    else if (volume.projected !== undefined) {
      for (const { serviceAccountToken: token } of volume.projected.sources) {
        assert.ok(token !== undefined, `volume ${name} has a source that is not known here`);
        this.#write(folder, {
          [token.path]: this.#settings.tokenOf(namespace, spec.serviceAccountName ?? "default", token.audience),
        });
      }
    } else assert.ok(volume.emptyDir !== undefined, `volume ${name} is of a kind that is not known here`);
    return { source: folder };
  }

  #write(folder: string, files: Readonly<Record<string, string>>): void {
    mkdirSync(folder, { recursive: true });
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  }

  /** The command line that runs a command in a root of its own. */
  #inRoot(
    { netns = this.#settings.netns, mounts, env, readOnly, security }: RootSettings,
    command: readonly string[],
  ): string[] {
    const { folder, image } = this.#settings;
    const root = join(folder, "root");
    mkdirSync(root, { recursive: true });
    const script = [
      "set -e",
      `R=${root}`,
      "mount -t tmpfs -o mode=755 tmpfs $R",
      "for d in bin sbin lib lib64; do if [ -L /$d ]; then cp -P /$d $R/; elif [ -d /$d ]; then mkdir $R/$d; mount --rbind /$d $R/$d; fi; done",
      "mkdir -p $R/etc $R/usr $R/proc $R/sys $R/dev $R/var/run $R/run $R/root; mkdir -m 1777 $R/tmp",
      `for f in ${ETC.join(" ")}; do if [ -e /etc/$f ]; then cp -a /etc/$f $R/etc/; fi; done`,
      "for d in usr proc sys dev; do mount --rbind /$d $R/$d; done",
      `cp -P ${image}/proxy-* $R/; mount --bind ${image}/usr/local $R/usr/local; mount -o remount,bind,ro $R/usr/local`,
      `mount --bind ${process.execPath} $R/usr/local/bin/node`,
      ...mounts
        .toSorted((one, other) => one.target.length - other.target.length)
        .flatMap(({ source, target, readOnly: isReadOnly }) => [
          statSync(source).isDirectory() ? `mkdir -p $R${target}` : `mkdir -p $R${dirname(target)}; : >$R${target}`,
          `mount --rbind ${source} $R${target}`,
          ...(isReadOnly ? [`mount -o remount,bind,ro $R${target}`] : []),
          // Network namespaces of pods that start later are seen, as with `mountPropagation: HostToContainer`.
          ...(target === "/run" ? ["mkdir -p $R/run/netns; mount --rbind /run/netns $R/run/netns"] : []),
        ]),
      ...(readOnly ? ["mount -o remount,ro $R"] : []),
      // As a runtime leaves them to a container that is not privileged.
      ...(security === undefined || security.privileged === true
        ? []
        : [
            "mount --bind $R/proc/sys $R/proc/sys; mount -o remount,bind,ro $R/proc/sys",
            "mount -o remount,bind,ro $R/sys",
          ]),
      'exec chroot $R "$@"',
    ].join("\n");
    const variables = Object.entries({ PATH, ...env }).map(([key, value]) => `${key}=${value}`);
    return [
      ...["nsenter", `--net=/run/netns/${netns}`, "unshare", "--mount", "--propagation=slave"],
      ...["sh", "-c", script, "sh", ...privilegesOf(security), "env", "-i", ...variables, ...command],
    ];
  }
}

interface Mount {
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

interface RootSettings {
  readonly netns?: string;
  readonly mounts: readonly Mount[];
  readonly env: Readonly<Record<string, string>>;
  readonly readOnly: boolean;
  readonly security?: SecurityContext;
}

/** A word with what `$(NAME)` stands for, as kubelet puts it in. */
function expanded(word: string, env: Readonly<Record<string, string>>): string {
  return word.replaceAll(/\$\(([A-Za-z_]\w*)\)/g, (whole, name: string) => env[name] ?? whole);
}

/** The command that takes from root what a runtime takes from it. */
function privilegesOf(security: SecurityContext | undefined): string[] {
  if (security === undefined || security.privileged === true) return [];
  const { capabilities, runAsUser, runAsGroup, allowPrivilegeEscalation } = security;
  const dropsAll = capabilities?.drop?.includes("ALL") === true;
  const kept = [
    ...(dropsAll ? [] : DEFAULT_CAPABILITIES),
    ...(capabilities?.add ?? []).map((one) => one.toLowerCase()),
  ];
  return [
    "setpriv",
    `--bounding-set=${["-all", ...kept.map((one) => `+${one}`)].join(",")}`,
    "--inh-caps=-all",
    ...(runAsUser === undefined ? [] : [`--reuid=${runAsUser}`, `--regid=${runAsGroup ?? 0}`, "--clear-groups"]),
    ...(allowPrivilegeEscalation === false ? ["--no-new-privs"] : []),
  ];
}
