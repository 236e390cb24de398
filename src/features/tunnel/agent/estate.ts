import type { Holding } from "#base/estate";
import type { IpAddress } from "#base/ip";
import { BIND_ALIAS } from "./bind-plan.ts";

/** The kernel objects of the agent's bind interface. Pure. */
export function bindEstate({
  name,
  addresses,
}: {
  readonly name: string;
  readonly addresses: readonly IpAddress[];
}): readonly Holding[] {
  const at = (link: string, id: string) =>
    addresses.map((address) => ({ ...({ id, kind: "address", address: String(address), link } as const) }));
  return [
    {
      claims: [
        { id: "bind", kind: "links", alias: BIND_ALIAS },
        { id: "bind-name", kind: "link-names", names: [name] },
        ...at(name, "bind-address"),
      ],
      flags: { names: "--bind-interface", link: "--bind-interface", address: "--bind-address" },
      what: "a dummy interface that holds the bind addresses of the way to the control plane, /32 with host scope or /128; `lo` has them if the kernel has no dummy interfaces",
    },
    {
      claims: at("lo", "lo-address"),
      flags: { address: "--bind-address" },
      what: "the same, if the kernel has no dummy interfaces",
    },
  ];
}
