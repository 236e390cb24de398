/** Label of every object that a lab makes: the lab's name. Also the key of the taint of its Nodes. */
export const LAB_LABEL = "lab.isthmus.dev/lab";
/** Label of every object that a lab makes: the run that made it. */
export const RUN_LABEL = "lab.isthmus.dev/run";

/** Letters that cannot be mistaken for each other; their number is a power of two. */
const ALPHABET = "bcdfghjkmnpqrstvwxz23456789bcdfg";
const RUN_LENGTH = 6;

/** The lab and the run that own objects on a cluster. */
export interface LabIdentity {
  readonly lab: string;
  /** Unique for each start of a lab. */
  readonly run: string;
  /** Prefix of the names of cluster-scoped objects; empty on the lab's own API server. */
  readonly prefix: string;
  /** True if the lab did not make the cluster: names must then be unique, and every object must be removed. */
  readonly isGuest: boolean;
}

/** Pure: a name for one run of a lab. */
export function newRun(random: Uint8Array = crypto.getRandomValues(new Uint8Array(RUN_LENGTH))): string {
  return Array.from(random.subarray(0, RUN_LENGTH), (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

/** Pure: the identity of a lab with an API server of its own; names are short. */
export function hostIdentity(lab: string, run: string): LabIdentity {
  return { lab, run, prefix: "", isGuest: false };
}

/** Pure: the identity of a lab on a foreign cluster. */
export function guestIdentity(lab: string, run: string): LabIdentity {
  return { lab, run, prefix: `isthmus-${lab}-${run}-`, isGuest: true };
}

/** Pure: the labels of every object of this run. */
export function ownLabels({ lab, run }: LabIdentity): Readonly<Record<string, string>> {
  return { [LAB_LABEL]: lab, [RUN_LABEL]: run };
}

/** Pure: the label selector of this run's objects. */
export function ownSelector({ lab, run }: LabIdentity): string {
  return `${LAB_LABEL}=${lab},${RUN_LABEL}=${run}`;
}

/** Pure: whether this run made the object. */
export function isOwn(
  identity: LabIdentity,
  { metadata }: { readonly metadata: { readonly labels?: Readonly<Record<string, string>> } },
): boolean {
  return metadata.labels?.[LAB_LABEL] === identity.lab && metadata.labels[RUN_LABEL] === identity.run;
}
