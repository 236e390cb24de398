{{- /* The folders of a program of a node on its host: what it owns there, for `isthmus uninstall`, and the last known API servers. */ -}}
{{- define "isthmus.estateMounts" -}}
- { name: own-run, mountPath: /run/isthmus/{{ .program }} }
- { name: own-state, mountPath: /var/lib/isthmus/{{ .program }} }
{{- end }}
{{- define "isthmus.estateVolumes" -}}
# What the program owns on this node, for isthmus uninstall; the last known API servers of the cluster.
- name: own-run
  hostPath: { path: /run/isthmus/{{ .program }}, type: DirectoryOrCreate }
- name: own-state
  hostPath: { path: /var/lib/isthmus/{{ .program }}, type: DirectoryOrCreate }
{{- end }}
