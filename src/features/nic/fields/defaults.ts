import type { NamedNic, Nic } from "#kube/nic";

/** The wish of a pod: a VPC, and its NICs. */
export interface NicWish {
  readonly vpc?: string | undefined;
  readonly nics?: readonly Nic[] | undefined;
}

/** A wish in which every NIC has a name. Without NICs there is no wish at all. */
export interface NamedWish {
  readonly vpc?: string | undefined;
  readonly nics: readonly NamedNic[];
}

/** The name of the NIC that container runtimes ask CNI for, and whose address is the pod's. */
export const PRIMARY_NIC = "eth0";

/**
 * Fills in what a pod leaves out (docs/spec/vpc-nics.md#1.1): the NIC of a VPC without NICs, names, and for NICs without a VPC the one of
 * the namespace. Pure, and the same again for its own result.
 */
export function defaultNics(
  { vpc, nics = [] }: NicWish,
  { defaultVpc }: { readonly defaultVpc?: string | undefined } = {},
): NamedWish {
  if (nics.length === 0) return vpc === undefined ? { nics: [] } : { vpc, nics: [{ name: PRIMARY_NIC }] };
  const chosen = vpc ?? defaultVpc;
  return {
    ...(chosen === undefined ? {} : { vpc: chosen }),
    // A name that another NIC has is a fault for the validation; no NIC is given another number.
    nics: nics.map(({ name, ...nic }, at) => ({ name: name ?? `eth${at}`, ...nic })),
  };
}
