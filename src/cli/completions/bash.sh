# bash completion for asdf-mount
# The words of a line as the shell would split it: the last one, which may be quoted, is cur, and those before it are words.
_asdf_mount_split() {
    local line=$1 char i
    words=() cur='' quote=''
    for ((i = 0; i < ${#line}; i++)); do
        char=${line:i:1}
        if [[ $char == "$quote" ]]; then
            quote=''
        elif [[ $quote == "'" ]]; then
            cur+=$char
        elif [[ $char == '\' ]]; then
            ((i += 1))
            cur+=${line:i:1}
        elif [[ -n $quote ]]; then
            cur+=$char
        elif [[ $char == [\"\'] ]]; then
            quote=$char
        elif [[ $char == [[:space:]] ]]; then
            [[ -n $cur ]] && words+=("$cur")
            cur=''
        else
            cur+=$char
        fi
    done
}
_asdf_mount_points() {
    local point
    while IFS= read -r point; do
        [[ -n $cur && $point == "$cur"* ]] || point=${point#"$PWD"/}
        [[ $point == "$cur"* ]] && printf '%s\n' "$point"
    done < <(awk '@MOUNT_POINTS@' /proc/self/mounts)
}
_asdf_mount_words() {
    case ${words[-1]} in
        -o)
            compgen -P "${cur%"${cur##*,}"}" -W '@MOUNT_OPTIONS@' -- "${cur##*,}"
            return ;;
        --completions) compgen -W 'bash zsh fish' -- "$cur"; return ;;
        --explode) compgen -d -- "$cur"; return ;;
        --preview | --implode | --pid-file | --log-file | --files-from) compgen -f -- "$cur"; return ;;
        --timeout | --size) return ;;
    esac
    if [[ $cur == -* ]]; then
        compgen -W '@FLAGS@' -- "$cur"
    elif [[ " ${words[*]} " =~ \ (-u|--unmount|--revert)\  ]]; then
        _asdf_mount_points
    else
        compgen -f -X '!*.asdf' -- "$cur"
        compgen -d -- "$cur"
    fi
}
_asdf_mount() {
    local words cur quote split='' reply
    _asdf_mount_split "${COMP_LINE:0:COMP_POINT}"
    [[ ${words[-1]} == -o || $cur == -* ]] || compopt -o filenames
    [[ ${words[-1]} == -o ]] && compopt -o nospace
    # readline may take what stands behind = or : for a word of its own
    if [[ -z $quote ]]; then
        [[ $COMP_WORDBREAKS == *=* && $cur == *=* ]] && split=${cur%=*}=
        [[ $COMP_WORDBREAKS == *:* && ${cur#"$split"} == *:* ]] && split=${cur%:*}:
    fi
    COMPREPLY=()
    while IFS= read -r reply; do
        COMPREPLY+=("${reply#"$split"}")
    done < <(_asdf_mount_words)
}
complete -F _asdf_mount asdf-mount
