/** Devices of a pod that have ended with its sandbox. */
export interface DeviceLoss {
  /** The names of their NICs. */
  readonly names: readonly string[];
  /** When it was found, in milliseconds since the epoch: it is told with this time, so that it is told once. */
  readonly at: number;
}

/** The losses that are to be told, by pod: as many as pods that have lost devices and were not plugged since. */
export class LostDevices {
  readonly #losses = new Map<string, DeviceLoss>();

  /**
   * Something of a pod was plugged or unplugged, and these NICs were lost. Runtimes repeat DEL, which then finds nothing; only a plug ends a loss.
   */
  note(
    podUid: string,
    names: readonly string[],
    { isPlugged, now }: { readonly isPlugged: boolean; readonly now: number },
  ): void {
    if (isPlugged) this.#losses.delete(podUid);
    else if (names.length > 0 && !this.#losses.has(podUid)) this.#losses.set(podUid, { names, at: now });
  }

  of(podUid: string): DeviceLoss | undefined {
    return this.#losses.get(podUid);
  }

  forget(podUid: string): void {
    this.#losses.delete(podUid);
  }
}
