import type { YamlPath } from "#base/yaml";
import { invalid, required, tooMany, unknownField } from "#kube/crd";
import { briefly, isRecord } from "../fields/read-nics.ts";
import { addFault, findKey, type Plan } from "./plan.ts";

type Unchecked = Readonly<Record<string, unknown>>;

/** The machine of a pod of Arktos. */
export interface Machine {
  /** The key of the pod's spec that has it. */
  readonly key: string;
  readonly container: Unchecked & { readonly name: string; readonly image: string };
  /** The whole machine, for the annotation: known keys first, and a port that is a number alone as that number. */
  readonly whole: Unchecked;
}

/** Fields of a port that a container's port has too. */
const PORT_FIELDS = ["name", "protocol", "hostPort", "hostIP"];
const KNOWN = ["name", "flavor", "image", "ports", "resources"];

/** Reads the machine of a pod's spec, or the only one of its list; `undefined` if there is none, or none that can be read. */
export function readMachine(spec: Unchecked, path: YamlPath, plan: Plan): Machine | undefined {
  const found = findKey(spec, ["virtualmachine", "vms"], { plan, path });
  if (found === undefined) return undefined;
  const { key, value } = found;
  if (value === undefined || value === null) return undefined;
  if (key.toLowerCase() === "virtualmachine") return machineOf(value, [key], { key, path, plan });
  if (!Array.isArray(value)) {
    addFault(plan, path, invalid(key, briefly(value), "must be a list of one virtual machine"));
    return undefined;
  }
  if (value.length > 1) addFault(plan, path, tooMany(key, value.length, "one VM per pod"));
  return value.length === 1 ? machineOf(value[0], [key, 0], { key, path, plan }) : undefined;
}

interface Reading {
  readonly key: string;
  readonly path: YamlPath;
  readonly plan: Plan;
}

function machineOf(value: unknown, place: YamlPath, { key, path, plan }: Reading): Machine | undefined {
  const at = [...path, ...place];
  if (!isRecord(value)) {
    addFault(plan, at, invalid("", briefly(value), "must be an object"), []);
    return undefined;
  }
  const before = plan.faults.length;
  const known: Record<string, unknown> = {};
  const written = new Map<string, string>();
  for (const name of KNOWN) {
    const found = findKey(value, [name], { plan, path: at });
    if (found === undefined || found.value === null) continue;
    known[name] = found.value;
    written.set(name, found.key);
  }
  const text = (name: "name" | "image"): string => {
    const one = known[name];
    if (typeof one === "string" && one !== "") return one;
    if (one === undefined) addFault(plan, at, required(name, "a virtual machine has a name and an image"));
    else addFault(plan, at, invalid(name, briefly(one), "must be a text"), [written.get(name) ?? name]);
    return "";
  };
  const [name, image] = [text("name"), text("image")];
  const ports = portsOf(known["ports"], [...at, written.get("ports") ?? "ports"], plan);
  if (known["resources"] !== undefined && !isRecord(known["resources"])) {
    addFault(plan, at, invalid("resources", briefly(known["resources"]), "must be an object"));
  }
  if (plan.faults.length > before) return undefined;
  const others = Object.entries(value).filter(([other]) => !KNOWN.includes(other.toLowerCase()));
  const resources = known["resources"] === undefined ? {} : { resources: known["resources"] };
  return {
    key,
    container: { name, image, ...(ports === undefined ? {} : { ports: ports.map(({ port }) => port) }), ...resources },
    whole: {
      name,
      ...("flavor" in known ? { flavor: known["flavor"] } : {}),
      image,
      ...(ports === undefined ? {} : { ports: ports.map(({ short }) => short) }),
      ...resources,
      ...Object.fromEntries(others),
    },
  };
}

/** The ports of a machine, as those of a container and as the annotation has them. */
function portsOf(value: unknown, path: YamlPath, plan: Plan) {
  if (value === undefined) return undefined;
  if (!Array.isArray(value)) {
    addFault(plan, path, invalid("", briefly(value), "must be a list of ports"), []);
    return undefined;
  }
  return value.map((item: unknown, index) => {
    const at = [...path, index];
    const fields = isRecord(item) ? item : { VMPort: item };
    const number = findKey(fields, ["vmport", "containerport"], { plan, path: at });
    const containerPort = number?.value;
    const isPort = typeof containerPort === "number" && Number.isInteger(containerPort);
    if (!isPort || containerPort < 1 || containerPort > 65_535) {
      addFault(plan, at, invalid("VMPort", briefly(containerPort ?? null), "must be a port from 1 to 65535"), []);
    }
    const rest = Object.entries(fields).filter(([key]) => key !== number?.key);
    for (const [key] of rest) if (!PORT_FIELDS.includes(key)) addFault(plan, at, unknownField(key));
    const others = Object.fromEntries(rest);
    return {
      port: { containerPort, ...others },
      short: rest.length === 0 ? containerPort : { VMPort: containerPort, ...others },
    };
  });
}

/** The machine of Arktos' pod again, from the annotation. Pure; the annotation was checked to be an object. */
export function restoreMachine({ name, image, flavor, ports, ...rest }: Unchecked): Unchecked {
  const list = Array.isArray(ports) ? ports.map((port: unknown) => (isRecord(port) ? port : { VMPort: port })) : ports;
  const known = { name, image, flavor, ports: list };
  return { ...Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined)), ...rest };
}
