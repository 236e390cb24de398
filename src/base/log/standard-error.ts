/** The most bytes that may wait for the reader of standard error; above this, lines are dropped. */
const MAX_WAITING_BYTES = 1 << 20;

/**
 * Writes lines to standard error. Where that is a pipe or a socket that nobody reads fast enough, as when a container runtime or journald hangs, Node.js keeps what the
 * kernel does not take. A log must neither fill the memory nor stop the program, so beyond a bound lines are dropped; `onDropped` gets their number when the reader
 * has caught up.
 */
export function standardError(onDropped: (lines: number) => void): (line: string) => void {
  let dropped = 0;
  const report = (): void => {
    const lines = dropped;
    dropped = 0;
    onDropped(lines);
  };
  return (line) => {
    const { stderr } = process;
    if (stderr.writableLength < MAX_WAITING_BYTES) {
      stderr.write(line);
      return;
    }
    if (dropped === 0) stderr.once("drain", report);
    dropped += 1;
  };
}
