import { exitCodes, files, type Section } from "#base/estate";

/** Notes by program. A number that a flag sets is the flag's default. */
export const uplink: Readonly<Record<string, readonly Section[]>> = {
  "mgmtproxy-env": [
    exitCodes(
      ["0", "done; `enabled`: programs use the proxy"],
      ["1", "failed; `enabled`: the off-switch is on"],
      ["2", "a flag is wrong"],
      ["the command's", "`run`: its exit status, 128 and the signal's number after a signal"],
    ),
    files(
      [
        "`/run/kube/mgmtproxy-disable`",
        "the off-switch (`--off-switch`): any kind of file; it applies to programs that are started later",
      ],
      ["`/run/mgmtproxy-containerd-env`", "the variables of the runtime at its start (`--sentinel`), mode 0644"],
    ),
  ],
};
