/** Label of every object that a lab makes: the lab's name. Also the key of the taint of its Nodes. */
export const LAB_LABEL = "lab.isthmus.dev/lab";
/** Label of every object that a lab makes: which run of the lab made it. */
export const RUN_LABEL = "lab.isthmus.dev/run";

/** Letters that cannot be taken for each other; a power of two of them. */
const ALPHABET = "bcdfghjkmnpqrstvwxz23456789bcdfg";
const RUN_LENGTH = 6;

/** Who makes objects on a cluster. */
export interface LabIdentity {
  readonly lab: string;
  /** Each start of a lab has another. */
  readonly run: string;
  /** What names of cluster-wide objects begin with: nothing on the lab's own API server. */
  readonly prefix: string;
  /** The cluster is somebody else's: names must be the lab's alone, and nothing may stay. */
  readonly isGuest: boolean;
}

/** Pure: a name for one run of a lab. */
export function newRun(random: Uint8Array = crypto.getRandomValues(new Uint8Array(RUN_LENGTH))): string {
  return Array.from(random.subarray(0, RUN_LENGTH), (byte) => ALPHABET[byte % ALPHABET.length]).join("");
}

/** Pure: of a lab with an API server of its own; names stay short. */
export function hostIdentity(lab: string, run: string): LabIdentity {
  return { lab, run, prefix: "", isGuest: false };
}

/** Pure: of a lab on a cluster of somebody else. */
export function guestIdentity(lab: string, run: string): LabIdentity {
  return { lab, run, prefix: `isthmus-${lab}-${run}-`, isGuest: true };
}

/** Pure: the labels of everything that this run makes. */
export function ownLabels({ lab, run }: LabIdentity): Readonly<Record<string, string>> {
  return { [LAB_LABEL]: lab, [RUN_LABEL]: run };
}

/** Pure: selects what this run has made. */
export function ownSelector({ lab, run }: LabIdentity): string {
  return `${LAB_LABEL}=${lab},${RUN_LABEL}=${run}`;
}

/** Pure: whether an object is of this run. */
export function isOwn(
  identity: LabIdentity,
  { metadata }: { readonly metadata: { readonly labels?: Readonly<Record<string, string>> } },
): boolean {
  return metadata.labels?.[LAB_LABEL] === identity.lab && metadata.labels[RUN_LABEL] === identity.run;
}
