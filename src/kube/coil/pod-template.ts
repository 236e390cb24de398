import { type FieldFault, invalid, required } from "#kube/crd";

/** The container of an Egress's pod template that is the router. */
export const ROUTER_CONTAINER = "egress";

/** The most characters that a quantity of a router's resources may have. What Kubernetes itself writes has at most 26. */
export const MAX_QUANTITY_LENGTH = 64;

/**
 * The faults of the parts of an Egress's pod spec that are read here or by the controller; the CRD takes any object for it, and the other parts are the API
 * server's to judge, when the controller applies a Deployment. Pure; any value may be given. An absent part and null are no faults.
 */
export function podSpecFaults(spec: unknown): FieldFault[] {
  const at = "spec.template.spec";
  const faults: FieldFault[] = [];
  if (!isPresent(spec)) return faults;
  if (!isRecord(spec)) return [invalid(at, typeof spec, "must be an object")];
  const containers = namedList(spec["containers"], `${at}.containers`, faults);
  namedList(spec["volumes"], `${at}.volumes`, faults);
  for (const [index, container] of containers.entries()) {
    if (container["name"] !== ROUTER_CONTAINER) continue;
    const own = `${at}.containers[${index}]`;
    namedList(container["env"], `${own}.env`, faults);
    namedList(container["volumeMounts"], `${own}.volumeMounts`, faults);
    checkResources(container["resources"], `${own}.resources`, faults);
  }
  return faults;
}

/** The objects of a list whose members need a name. */
function namedList(value: unknown, field: string, faults: FieldFault[]): readonly Readonly<Record<string, unknown>>[] {
  if (!isPresent(value)) return [];
  if (!Array.isArray(value)) {
    faults.push(invalid(field, typeof value, "must be a list"));
    return [];
  }
  return value.map((item: unknown, index) => {
    if (!isRecord(item)) faults.push(invalid(`${field}[${index}]`, typeof item, "must be an object"));
    else if (typeof item["name"] !== "string" || item["name"] === "")
      faults.push(required(`${field}[${index}].name`, ""));
    return isRecord(item) ? item : {};
  });
}

function checkResources(value: unknown, field: string, faults: FieldFault[]): void {
  if (!isPresent(value)) return;
  if (!isRecord(value)) {
    faults.push(invalid(field, typeof value, "must be an object"));
    return;
  }
  for (const name of ["limits", "requests"]) {
    const amounts = value[name];
    if (!isPresent(amounts)) continue;
    if (!isRecord(amounts)) {
      faults.push(invalid(`${field}.${name}`, typeof amounts, "must be an object"));
      continue;
    }
    for (const [resource, amount] of Object.entries(amounts)) {
      if (typeof amount === "string" && amount.length > MAX_QUANTITY_LENGTH)
        faults.push(
          invalid(
            `${field}.${name}[${resource}]`,
            `${amount.slice(0, MAX_QUANTITY_LENGTH)}...`,
            `must have at most ${MAX_QUANTITY_LENGTH} characters`,
          ),
        );
    }
  }
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
