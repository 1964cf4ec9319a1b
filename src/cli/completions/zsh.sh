#compdef asdf-mount
_asdf_mount_points() {
    local -a points
    points=(${(f)"$(awk '$3 == "fuse.asdf-mount" {print $2}' /proc/self/mounts)"})
    _wanted mounts expl mountpoint compadd -a points
}
_asdf_mount_paths() {
    if (( ${words[(I)-u]} || ${words[(I)--unmount]} )); then
        _asdf_mount_points
    else
        _alternative 'files:ASDF file:_files -g "*.asdf"' 'directories:directory:_files -/'
    fi
}
_asdf_mount() {
    _arguments -s \
        '*-o[mount options]:option:_values -s , option @MOUNT_OPTIONS@' \
@FLAGS@
        '*:path:_asdf_mount_paths'
}
if [ "$funcstack[1]" = _asdf-mount ]; then _asdf_mount "$@"; else compdef _asdf_mount asdf-mount; fi
