import { files, type Section } from "./section.ts";

/** By program. Numbers are defaults where a flag sets them. */
export const uplink: Readonly<Record<string, readonly Section[]>> = {
  "mgmtproxy-env": [
    {
      title: "Exit codes",
      head: ["code", "when"],
      rows: [
        ["0", "done; `enabled`: programs go through the proxy"],
        ["1", "it could not be done; `enabled`: the off-switch is on"],
        ["2", "a flag is wrong"],
        ["the command's", "`run`: its exit status, 128 and the signal's number after a signal"],
      ],
    },
    files(
      [
        "`/run/kube/mgmtproxy-disable`",
        "the off-switch (`--off-switch`): any kind of file, for programs started from then on",
      ],
      ["`/run/mgmtproxy-containerd-env`", "what the runtime was started with (`--sentinel`), mode 0644"],
    ),
  ],
};
