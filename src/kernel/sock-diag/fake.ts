import type { ListeningSocket, SockDiag } from "./types.ts";

/** Sockets in memory: tests add and remove them. */
export class FakeSockDiag implements SockDiag {
  readonly sockets: ListeningSocket[] = [];

  listeners(): readonly ListeningSocket[] {
    return [...this.sockets];
  }

  [Symbol.dispose](): void {
    this.sockets.length = 0;
  }
}
