/** The pod that a call is for. */
export interface PodIdentity {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}
