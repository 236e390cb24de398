import type { Pulse } from "../link/session.ts";

/** A peer that says nothing by itself. */
export class FakePulse implements Pulse {
  bytesRead = 0;
  isInDoubt = false;
  probes = 0;

  probe(): void {
    if (!this.isInDoubt) this.probes += 1;
    this.isInDoubt = true;
  }

  probeIfSilent(): void {
    this.probe();
  }

  /** A byte comes. */
  beat(): void {
    this.bytesRead += 1;
    this.isInDoubt = false;
  }
}
