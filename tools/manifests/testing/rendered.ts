import type { Values } from "../index.ts";

/** The values with which {@link RENDERED} is rendered. */
export const RENDERED_WITH: Values = {
  on: true,
  off: false,
  name: "a",
  count: 3,
  none: "",
  list: ["x", "y"],
  map: { b: 2, a: 1 },
  text: "1\n2",
};

/** Templates, and what Helm makes of them. */
export const RENDERED: readonly (readonly [string, string])[] = [
  ["a {{ .Values.name }} b", "a a b"],
  ["a\n  {{- .Values.name -}}\n  b", "aab"],
  ["{{/* a comment */}}x{{- /* another\none */ -}} y", "xy"],
  ["{{ .Values.count }} {{ .Values.on }} {{ -3 }}", "3 true -3"],
  ['{{ "q\\"\\n" | quote }} {{ quote 3 }}', '"q\\"\\n" "3"'],
  ["{{ if .Values.off }}a{{ else if .Values.none }}b{{ else }}c{{ end }}", "c"],
  ["{{ if and .Values.on .Values.list }}a{{ end }}{{ if or .Values.off .Values.none }}b{{ end }}", "a"],
  [
    '{{ if not .Values.off }}a{{ end }}{{ if eq .Values.name "a" }}b{{ end }}{{ if ne .Values.name "b" }}c{{ end }}',
    "abc",
  ],
  [
    "{{ range .Values.list }}<{{ . }}>{{ end }}{{ range .Values.none | default .Values.list }}{{ . }}{{ end }}",
    "<x><y>xy",
  ],
  ["{{ range $at, $one := .Values.list }}{{ $at }}{{ $one }}{{ $.Values.name }}{{ end }}", "0xa1ya"],
  ["{{ range $key, $one := .Values.map }}{{ $key }}={{ $one }},{{ end }}", "a=1,b=2,"],
  [
    "{{ with .Values.name }}{{ . }}{{ else }}none{{ end }}{{ with .Values.none }}{{ . }}{{ else }}none{{ end }}",
    "anone",
  ],
  ["{{ $x := .Values.count }}{{ if .Values.on }}{{ $x := 4 }}{{ $x }}{{ end }}{{ $x }}", "43"],
  ['{{ define "f" }}<{{ .a }}>{{ end }}{{ include "f" (dict "a" .Values.name) | indent 2 }}', "  <a>"],
  ["x:{{ toYaml .Values.map | nindent 2 }}", "x:\n  a: 1\n  b: 2"],
  ["{{ toYaml .Values.list }}|{{ nindent 1 .Values.text }}", '- x\n- "y"|\n 1\n 2'],
  ['{{ default "d" .Values.none }}{{ default "d" .Values.name }}{{ trim " x " }}', "dax"],
  ["{{ sha256sum .Values.name }}", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"],
  ['{{ join "," .Values.list }}{{ contains ":" "a:b" }}', "x,ytrue"],
];
